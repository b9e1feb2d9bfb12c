-- requires: request_latest
-- grain: one row a request of the load generator, warm-up left out
CREATE VIEW measured_requests AS
SELECT
  request_id, arrival_ns, sent_ns, first_token_ns, end_ns, send_lag_s,
  client_ttft_s, client_e2e_s,
  CASE WHEN output_tokens > 1 THEN (end_ns - first_token_ns) / 1e9 / (output_tokens - 1) END AS client_tpot_s,
  input_tokens, output_tokens, cached_tokens, chunk_count, chunk_gap_s,
  status, error, workload, replica
FROM request_latest
WHERE source = 'client' AND NOT coalesce(warmup, false);
COMMENT ON VIEW measured_requests IS 'What the load generator saw, one row a request, the declared warm-up left out.';
COMMENT ON COLUMN measured_requests.client_tpot_s IS '[s] first to last token divided by output tokens - 1; NULL below two tokens';
COMMENT ON COLUMN measured_requests.send_lag_s IS '[s] sent after the intended time';
COMMENT ON COLUMN measured_requests.client_ttft_s IS '[s] arrival to first chunk';
COMMENT ON COLUMN measured_requests.client_e2e_s IS '[s] arrival to last byte';
COMMENT ON COLUMN measured_requests.input_tokens IS '[tokens] prompt';
COMMENT ON COLUMN measured_requests.output_tokens IS '[tokens] answer';
COMMENT ON COLUMN measured_requests.cached_tokens IS '[tokens] of the prompt from cache';
COMMENT ON COLUMN measured_requests.chunk_count IS '[count] content chunks';
COMMENT ON COLUMN measured_requests.chunk_gap_s IS '[s] gaps between chunks, in order';
COMMENT ON COLUMN measured_requests.status IS 'ok, error, timeout, refused or unfinished';
