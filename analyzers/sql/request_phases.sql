-- requires: request_latest
-- grain: one row a request that a server span tells of, warm-up left out
-- The server's clock and the client's may differ: only durations meet here, and arrival_ns is one side's alone.
CREATE VIEW request_phases AS
WITH client AS (
  SELECT * FROM request_latest WHERE source = 'client'
), joined AS (
  SELECT
    s.request_id,
    coalesce(c.arrival_ns, s.arrival_ns) AS arrival_ns,
    c.workload,
    c.status AS client_status,
    s.engine,
    c.send_lag_s, c.client_ttft_s, c.client_e2e_s,
    s.server_ttft_s, s.server_e2e_s,
    s.queue_wait_s, s.tokenize_s, s.prefill_s, s.decode_s, s.detokenize_s,
    s.server_e2e_s - s.queue_wait_s - s.prefill_s - s.decode_s AS rest_s,
    c.client_e2e_s - s.server_e2e_s AS network_s,
    c.client_ttft_s - s.server_ttft_s AS network_ttft_s,
    coalesce(c.input_tokens, s.input_tokens) AS input_tokens,
    coalesce(c.output_tokens, s.output_tokens) AS output_tokens,
    coalesce(s.cached_tokens, c.cached_tokens) AS cached_tokens
  FROM request_latest s
  LEFT JOIN client c ON c.request_id = s.request_id
  WHERE s.source = 'span' AND NOT coalesce(c.warmup, false)
)
SELECT
  * EXCLUDE (rest_s),
  -- not greatest(): it skips NULL, and what was not measured would read as zero
  CASE WHEN rest_s < 0 THEN 0 ELSE rest_s END AS front_end_s
FROM joined;
COMMENT ON VIEW request_phases IS 'Where each request spent its time: the server''s phases from its span beside what the client saw of the same request. A request of someone else''s client has NULL client columns; one without a span has no row.';
COMMENT ON COLUMN request_phases.request_id IS 'X-Request-Id where the load generator sent one, else the engine''s own id';
COMMENT ON COLUMN request_phases.arrival_ns IS '[ns] since the epoch: by the client''s clock where it has the request, else by the server''s';
COMMENT ON COLUMN request_phases.workload IS 'workload class that drew it; NULL when not the load generator''s';
COMMENT ON COLUMN request_phases.client_status IS 'ok, error, timeout, refused or unfinished, at the client; NULL when not the load generator''s';
COMMENT ON COLUMN request_phases.engine IS 'engine kind whose span it is';
COMMENT ON COLUMN request_phases.send_lag_s IS '[s] sent after the intended time: part of the client''s durations, and so of network_s';
COMMENT ON COLUMN request_phases.client_ttft_s IS '[s] arrival to first content chunk, at the client';
COMMENT ON COLUMN request_phases.client_e2e_s IS '[s] arrival to last byte, at the client; NULL when it did not end well';
COMMENT ON COLUMN request_phases.server_ttft_s IS '[s] arrival to first token, at the server''s front end';
COMMENT ON COLUMN request_phases.server_e2e_s IS '[s] arrival to last token, at the server''s front end';
COMMENT ON COLUMN request_phases.queue_wait_s IS '[s] in the engine''s queue before the first schedule';
COMMENT ON COLUMN request_phases.tokenize_s IS '[s] front end before the engine; NULL where the engine does not tell it apart (vLLM)';
COMMENT ON COLUMN request_phases.prefill_s IS '[s] first schedule to first token; NULL where the engine counts something else';
COMMENT ON COLUMN request_phases.decode_s IS '[s] first to last token';
COMMENT ON COLUMN request_phases.detokenize_s IS '[s] after the engine; NULL where it is not told apart';
COMMENT ON COLUMN request_phases.front_end_s IS '[s] server end-to-end minus queue, prefill and decode, at least 0: tokenization, IPC, the pass in flight at arrival, detokenization; NULL when one of them is';
COMMENT ON COLUMN request_phases.network_s IS '[s] client minus server end-to-end: connection, path, proxies, streaming, and send_lag_s';
COMMENT ON COLUMN request_phases.network_ttft_s IS '[s] client minus server TTFT';
COMMENT ON COLUMN request_phases.input_tokens IS '[tokens] prompt; the client''s count first';
COMMENT ON COLUMN request_phases.output_tokens IS '[tokens] answer; the client''s count first';
COMMENT ON COLUMN request_phases.cached_tokens IS '[tokens] of the prompt from cache; the server''s count first';
