-- requires: counter_deltas samples setting_latest run_window
-- grain: one row
-- signals: level 1
CREATE VIEW server_cpu AS
WITH parts AS (
  SELECT
    max(intervals) AS n,
    -- one that lived for a moment only is not the busiest
    max(delta / nullif(span_s, 0)) FILTER (span_s >= 0.5 * w.duration_s) AS busiest,
    sum(delta / nullif(CASE WHEN span_s > w.duration_s THEN span_s ELSE w.duration_s END, 0)) AS together
  FROM counter_deltas, run_window w WHERE signal = 'host_process_cpu_seconds'
), machine AS (
  SELECT
    min(value) FILTER (signal = 'host_cpu_limit_count') AS quota,
    max(value) FILTER (signal = 'host_cpu_count') AS cores
  FROM samples WHERE signal IN ('host_cpu_limit_count', 'host_cpu_count')
), asked AS (
  SELECT
    max(try_cast(value AS DOUBLE)) FILTER (key = 'cpu_limit_count') AS quota,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'cpu_count') AS cores
  FROM setting_latest
)
SELECT
  parts.n,
  busiest AS server_process_cpu_ratio,
  together AS server_cpu_cores_count,
  list_min([machine.quota, asked.quota, machine.cores, asked.cores]) AS cpu_limit_cores_count
FROM parts, machine, asked
WHERE coalesce(busiest, together, cpu_limit_cores_count) IS NOT NULL;
COMMENT ON VIEW server_cpu IS 'The CPU time of the server''s processes, and how much they may use. Engines spin while they wait: a full core alone is no want of CPU.';
COMMENT ON COLUMN server_cpu.server_process_cpu_ratio IS '[ratio] CPU seconds a second of the server''s busiest process: 1 is one core full, more are several threads';
COMMENT ON COLUMN server_cpu.server_cpu_cores_count IS '[count] CPU seconds a second of all processes of the server together';
COMMENT ON COLUMN server_cpu.cpu_limit_cores_count IS '[count] cores that the server may use: the least of the quota of its control groups, the limit of its pod and the machine''s cores, as far as they are known';
