-- requires: measured_requests token_gaps
-- grain: one row
-- signals: level 1
CREATE TABLE client_latency AS
WITH blocks AS (
  SELECT ntile(20) OVER (ORDER BY arrival_ns, request_id) AS block, * FROM measured_requests WHERE status = 'ok'
), per_block AS (
  SELECT
    avg(client_ttft_s) AS ttft_s, avg(client_e2e_s) AS e2e_s, avg(client_tpot_s) AS tpot_s,
    sum(list_sum(chunk_gap_s)) / nullif(sum(len(chunk_gap_s)), 0) AS itl_s
  FROM blocks GROUP BY block
), spread AS (
  SELECT
    2.09 * stddev_samp(ttft_s) / sqrt(count(*)) AS ttft_s,
    2.09 * stddev_samp(e2e_s) / sqrt(count(*)) AS e2e_s,
    2.09 * stddev_samp(tpot_s) / sqrt(count(*)) AS tpot_s,
    2.09 * stddev_samp(itl_s) / sqrt(count(*)) AS itl_s
  FROM per_block HAVING count(*) = 20
), m AS (
  SELECT
    count(*) AS n, avg(client_ttft_s) AS ttft, avg(client_e2e_s) AS e2e, avg(client_tpot_s) AS tpot,
    quantile_cont(client_ttft_s, [0.5, 0.95, 0.99]) AS ttft_q,
    quantile_cont(client_e2e_s, [0.5, 0.95, 0.99]) AS e2e_q,
    quantile_cont(client_tpot_s, [0.5, 0.95, 0.99]) AS tpot_q,
    sum(chunk_count) FILTER (output_tokens IS NOT NULL)::DOUBLE
      / nullif(sum(output_tokens) FILTER (chunk_count IS NOT NULL), 0) AS chunks_per_token
  FROM measured_requests WHERE status = 'ok'
), g AS (
  SELECT avg(gap_s) AS itl, quantile_cont(gap_s, [0.1, 0.5, 0.95, 0.99]) AS itl_q, max(gap_s) AS itl_max,
    sum(gap_s ** 2) / nullif(2 * sum(gap_s), 0) AS residual
  FROM token_gaps
)
SELECT
  m.n AS n,
  ttft AS client_ttft_mean_s, ttft - spread.ttft_s AS low_client_ttft_mean_s, ttft + spread.ttft_s AS high_client_ttft_mean_s,
  ttft_q[1] AS client_ttft_p50_s, ttft_q[2] AS client_ttft_p95_s, ttft_q[3] AS client_ttft_p99_s,
  e2e AS client_e2e_mean_s, e2e - spread.e2e_s AS low_client_e2e_mean_s, e2e + spread.e2e_s AS high_client_e2e_mean_s,
  e2e_q[1] AS client_e2e_p50_s, e2e_q[2] AS client_e2e_p95_s, e2e_q[3] AS client_e2e_p99_s,
  tpot AS client_tpot_mean_s, tpot - spread.tpot_s AS low_client_tpot_mean_s, tpot + spread.tpot_s AS high_client_tpot_mean_s,
  tpot_q[1] AS client_tpot_p50_s, tpot_q[2] AS client_tpot_p95_s, tpot_q[3] AS client_tpot_p99_s,
  itl AS client_itl_mean_s, itl - spread.itl_s AS low_client_itl_mean_s, itl + spread.itl_s AS high_client_itl_mean_s,
  itl_q[1] AS client_itl_p10_s, itl_q[2] AS client_itl_p50_s, itl_q[3] AS client_itl_p95_s, itl_q[4] AS client_itl_p99_s,
  itl_max AS client_itl_max_s,
  residual AS step_residual_s,
  itl_q[4] / nullif(itl_q[2], 0) AS stalled_itl_ratio,
  chunks_per_token AS chunks_per_token_ratio
FROM m CROSS JOIN g LEFT JOIN spread ON true
WHERE m.n > 0;
COMMENT ON TABLE client_latency IS 'Latencies as the client saw them, from the intended send time. Intervals of means are 95 % and come from 20 consecutive blocks of requests (batch means), since neighbours are not independent; NULL below 20 requests.';
COMMENT ON COLUMN client_latency.stalled_itl_ratio IS '[ratio] p99 over p50 of the gaps between chunks: how much worse a stall is than a normal step';
COMMENT ON COLUMN client_latency.chunks_per_token_ratio IS '[ratio] chunks a token: below 1 the engine or a proxy merges tokens';
COMMENT ON COLUMN client_latency.client_itl_p10_s IS '[s] 10th percentile: a step that nothing disturbed';
COMMENT ON COLUMN client_latency.client_ttft_mean_s IS '[s] arrival to first chunk, mean';
COMMENT ON COLUMN client_latency.client_ttft_p50_s IS '[s] arrival to first chunk, median';
COMMENT ON COLUMN client_latency.client_ttft_p95_s IS '[s] arrival to first chunk, 95th percentile';
COMMENT ON COLUMN client_latency.client_ttft_p99_s IS '[s] arrival to first chunk, 99th percentile';
COMMENT ON COLUMN client_latency.client_e2e_mean_s IS '[s] arrival to last byte, mean';
COMMENT ON COLUMN client_latency.client_e2e_p50_s IS '[s] arrival to last byte, median';
COMMENT ON COLUMN client_latency.client_e2e_p95_s IS '[s] arrival to last byte, 95th percentile';
COMMENT ON COLUMN client_latency.client_e2e_p99_s IS '[s] arrival to last byte, 99th percentile';
COMMENT ON COLUMN client_latency.client_tpot_mean_s IS '[s] first to last token over output tokens - 1, mean';
COMMENT ON COLUMN client_latency.client_tpot_p50_s IS '[s] first to last token over output tokens - 1, median';
COMMENT ON COLUMN client_latency.client_tpot_p95_s IS '[s] first to last token over output tokens - 1, 95th percentile';
COMMENT ON COLUMN client_latency.client_tpot_p99_s IS '[s] first to last token over output tokens - 1, 99th percentile';
COMMENT ON COLUMN client_latency.client_itl_mean_s IS '[s] gap between two chunks, mean';
COMMENT ON COLUMN client_latency.client_itl_p50_s IS '[s] gap between two chunks, median';
COMMENT ON COLUMN client_latency.client_itl_p95_s IS '[s] gap between two chunks, 95th percentile';
COMMENT ON COLUMN client_latency.client_itl_p99_s IS '[s] gap between two chunks, 99th percentile';
COMMENT ON COLUMN client_latency.client_itl_max_s IS '[s] longest gap';
COMMENT ON COLUMN client_latency.step_residual_s IS '[s] what is left, on average, of the pass that an arriving request finds in flight: E[T^2] / (2 E[T])';
