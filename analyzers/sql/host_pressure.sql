-- requires: run_window samples counter_deltas
-- grain: one row
-- signals: level 1
CREATE VIEW host_pressure AS
WITH whole AS (
  SELECT
    count(*) FILTER (signal = 'host_cpu_busy_ratio') AS n,
    avg(value) FILTER (signal = 'host_cpu_busy_ratio') AS busy,
    avg(value) FILTER (signal = 'host_cpu_steal_ratio') AS steal,
    max(value) FILTER (signal = 'host_cpu_count') AS cores
  FROM samples, run_window w
  WHERE signal IN ('host_cpu_busy_ratio', 'host_cpu_steal_ratio', 'host_cpu_count')
    AND t_ns BETWEEN w.start_ns AND w.end_ns
), parts AS (
  SELECT
    sum(delta / nullif(span_s, 0)) FILTER (signal = 'host_process_cpu_seconds') AS server,
    sum(delta / nullif(span_s, 0)) FILTER (signal = 'client_cpu_s') AS client,
    max(delta / nullif(span_s, 0)) FILTER (signal = 'host_process_run_wait_seconds') AS run_wait,
    max(delta / nullif(span_s, 0)) FILTER (signal = 'host_cpu_throttled_seconds') AS throttled
  FROM counter_deltas
)
SELECT
  n,
  busy AS host_cpu_busy_mean_ratio,
  steal AS host_cpu_steal_mean_ratio,
  CASE WHEN busy - (server + coalesce(client, 0)) / cores < 0 THEN 0
    ELSE busy - (server + coalesce(client, 0)) / cores END AS foreign_cpu_ratio,
  run_wait AS server_run_wait_ratio,
  throttled AS host_cpu_throttled_ratio
FROM whole, parts
WHERE n > 0;
COMMENT ON VIEW host_pressure IS 'Is the server''s machine short of CPU, and who takes it? Only where the server runs beside the recorder.';
COMMENT ON COLUMN host_pressure.host_cpu_busy_mean_ratio IS '[0..1] busy share of all cores; a CPU engine that spins shows as busy at any load';
COMMENT ON COLUMN host_pressure.host_cpu_steal_mean_ratio IS '[0..1] share taken by the hypervisor for other machines';
COMMENT ON COLUMN host_pressure.foreign_cpu_ratio IS '[0..1] share of all cores used by neither the server nor the load generator; NULL where the server''s processes are not known';
COMMENT ON COLUMN host_pressure.server_run_wait_ratio IS '[ratio] seconds a second that the most starved server process was runnable and not running, over its threads';
COMMENT ON COLUMN host_pressure.host_cpu_throttled_ratio IS '[ratio] seconds a second that the CPU quota of the control group held the server back';
