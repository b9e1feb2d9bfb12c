-- requires: client_latency server_phases token_gaps
-- grain: one row
-- signals: level 1
CREATE VIEW path AS
SELECT
  c.n AS n,
  c.client_ttft_mean_s - s.server_ttft_mean_s AS network_ttft_s,
  (c.client_ttft_mean_s - s.server_ttft_mean_s) / nullif(c.client_ttft_mean_s, 0) AS network_ttft_share_ratio,
  c.client_e2e_mean_s - s.server_e2e_mean_s AS network_e2e_s,
  (c.client_e2e_mean_s - s.server_e2e_mean_s) / nullif(c.client_e2e_mean_s, 0) AS network_share_ratio,
  c.client_itl_p50_s / nullif(s.server_itl_mean_s, 0) AS client_itl_p50_of_server_ratio,
  (SELECT count_if(gap_s < s.server_itl_mean_s / 4)::DOUBLE / nullif(count(*), 0) FROM token_gaps) AS bunched_gaps_ratio
FROM client_latency c, server_phases s
WHERE s.server_ttft_mean_s IS NOT NULL;
COMMENT ON VIEW path IS 'What lies between the client and the server: client times minus the server''s own.';
COMMENT ON COLUMN path.network_ttft_s IS '[s] client TTFT minus server TTFT, means';
COMMENT ON COLUMN path.network_ttft_share_ratio IS '[ratio] that over the client''s TTFT';
COMMENT ON COLUMN path.network_e2e_s IS '[s] client minus server end-to-end, means';
COMMENT ON COLUMN path.network_share_ratio IS '[ratio] that over the client''s end-to-end';
COMMENT ON COLUMN path.client_itl_p50_of_server_ratio IS '[ratio] median client gap over mean server gap: near 0 when a proxy holds chunks back and then sends many at once';
COMMENT ON COLUMN path.bunched_gaps_ratio IS '[0..1] client gaps below a quarter of the engine''s mean: tokens that were held back and then came together; an undisturbed stream has hardly any';
