-- requires: request_latest run_window client_latency server_phases token_gaps
-- grain: one row
-- signals: level 1
CREATE VIEW path AS
WITH client AS (
  -- the server's histograms count what ended in the window, the tail of the warm-up too: so does this
  SELECT
    count_if(r.status = 'ok' AND r.end_ns BETWEEN w.start_ns AND w.end_ns) AS n,
    avg(client_e2e_s) FILTER (r.status = 'ok' AND r.end_ns BETWEEN w.start_ns AND w.end_ns) AS e2e,
    avg((r.first_token_ns - r.arrival_ns) / 1e9) FILTER (r.first_token_ns BETWEEN w.start_ns AND w.end_ns) AS ttft
  FROM request_latest r, run_window w
  WHERE r.source = 'client'
)
SELECT
  client.n AS n,
  client.ttft - s.server_ttft_mean_s AS network_ttft_s,
  (client.ttft - s.server_ttft_mean_s) / nullif(client.ttft, 0) AS network_ttft_share_ratio,
  client.e2e - s.server_e2e_mean_s AS network_e2e_s,
  (client.e2e - s.server_e2e_mean_s) / nullif(client.e2e, 0) AS network_share_ratio,
  c.client_itl_p50_s / nullif(s.server_itl_mean_s, 0) AS client_itl_p50_of_server_ratio,
  1 - c.chunks_per_token_ratio * (
    1 - (SELECT count_if(gap_s < s.server_itl_mean_s / 4)::DOUBLE / nullif(count(*), 0) FROM token_gaps)
  ) AS bunched_tokens_ratio
FROM client, client_latency c, server_phases s
WHERE s.server_ttft_mean_s IS NOT NULL AND client.n > 0;
COMMENT ON VIEW path IS 'What lies between the client and the server: client times minus the server''s own, over the same requests.';
COMMENT ON COLUMN path.network_ttft_s IS '[s] client TTFT minus server TTFT, means';
COMMENT ON COLUMN path.network_ttft_share_ratio IS '[ratio] that over the client''s TTFT';
COMMENT ON COLUMN path.network_e2e_s IS '[s] client minus server end-to-end, means';
COMMENT ON COLUMN path.network_share_ratio IS '[ratio] that over the client''s end-to-end';
COMMENT ON COLUMN path.client_itl_p50_of_server_ratio IS '[ratio] median client gap over mean server gap: near 0 when a proxy holds chunks back and then sends many at once';
COMMENT ON COLUMN path.bunched_tokens_ratio IS '[0..1] tokens that came in one chunk with another, or less than a quarter of the engine''s mean gap after it: held back and then sent together; an undisturbed stream has hardly any';
