-- requires: measured_requests
-- grain: one row a finished request with a decode phase
CREATE VIEW request_batch AS
WITH edges AS (
  SELECT first_token_ns AS t_ns, 1 AS d FROM measured_requests WHERE status = 'ok' AND first_token_ns IS NOT NULL
  UNION ALL
  SELECT end_ns, -1 FROM measured_requests WHERE status = 'ok' AND first_token_ns IS NOT NULL
), levels AS (
  SELECT t_ns, sum(sum(d)) OVER (ORDER BY t_ns) AS level FROM edges GROUP BY t_ns
), area AS (
  SELECT t_ns, level,
    coalesce(sum(level * (next_ns - t_ns)) OVER (ORDER BY t_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
  FROM (SELECT *, lead(t_ns) OVER (ORDER BY t_ns) AS next_ns FROM levels)
)
SELECT
  r.request_id, r.input_tokens, r.output_tokens,
  (e.before - b.before) / nullif(r.end_ns - r.first_token_ns, 0)::DOUBLE AS batch_mean_count,
  r.client_tpot_s, list_median(r.chunk_gap_s) AS gap_p50_s
FROM measured_requests r
JOIN area b ON b.t_ns = r.first_token_ns
JOIN area e ON e.t_ns = r.end_ns
WHERE r.status = 'ok' AND r.output_tokens > 1 AND r.end_ns > r.first_token_ns;
COMMENT ON VIEW request_batch IS 'For each request, how many requests were decoding on average while it decoded, as the client saw them: the batch, when no one else uses the server.';
COMMENT ON COLUMN request_batch.batch_mean_count IS '[count] mean number of decoding requests, itself included';
COMMENT ON COLUMN request_batch.gap_p50_s IS '[s] its median gap between chunks: a decode step that no prefill disturbed';
COMMENT ON COLUMN request_batch.client_tpot_s IS '[s] its time per output token';
