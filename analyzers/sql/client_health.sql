-- requires: measured_requests counter_deltas events
-- grain: one row
-- signals: level 1
CREATE VIEW client_health AS
WITH lag AS (
  SELECT
    count(*) AS n,
    avg(send_lag_s) AS send_lag_mean_s,
    quantile_cont(send_lag_s, 0.99) AS send_lag_p99_s,
    (max(arrival_ns) - min(arrival_ns)) / 1e9 / nullif(count(*) - 1, 0) AS gap_s
  FROM measured_requests
), own AS (
  SELECT
    max(delta / nullif(span_s, 0)) FILTER (signal = 'client_cpu_s') AS client_cpu_ratio,
    max(delta / nullif(span_s, 0)) FILTER (signal = 'client_run_wait_s') AS client_run_wait_ratio
  FROM counter_deltas
)
SELECT
  lag.n AS n, send_lag_mean_s, send_lag_p99_s, send_lag_p99_s / nullif(gap_s, 0) AS send_lag_share_ratio,
  client_cpu_ratio, client_run_wait_ratio,
  (SELECT CASE WHEN min(value) > 0 THEN 'yes' WHEN min(value) <= 0 THEN 'no' END FROM events WHERE kind = 'client_realtime') AS client_realtime
FROM lag, own
WHERE lag.n > 0;
COMMENT ON VIEW client_health IS 'Was the load generator itself the bottleneck?';
COMMENT ON COLUMN client_health.send_lag_p99_s IS '[s] 99th percentile of how late requests were sent';
COMMENT ON COLUMN client_health.send_lag_share_ratio IS '[ratio] that lag over the mean gap between arrivals';
COMMENT ON COLUMN client_health.client_cpu_ratio IS '[ratio] CPU seconds a second of the busiest generator process';
COMMENT ON COLUMN client_health.client_run_wait_ratio IS '[ratio] seconds a second that the most starved generator process was runnable and not running: CPU shortage that CPU % does not show';
COMMENT ON COLUMN client_health.client_realtime IS 'yes: the generator ran at real-time priority';
COMMENT ON COLUMN client_health.send_lag_mean_s IS '[s] how late requests were sent, mean';
