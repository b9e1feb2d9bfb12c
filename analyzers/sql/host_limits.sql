-- requires: samples counter_deltas
-- grain: one row
-- signals: level 1
CREATE VIEW host_limits AS
WITH quota AS (
  SELECT
    count(DISTINCT t_ns) AS n,
    max(value) FILTER (signal = 'host_cpu_throttled_periods_count')
      / nullif(max(value) FILTER (signal = 'host_cpu_periods_count'), 0) AS throttled
  FROM samples WHERE signal IN ('host_cpu_throttled_periods_count', 'host_cpu_periods_count')
), swap AS (
  SELECT max(intervals) AS n, max(delta / nullif(span_s, 0)) AS swap_in
  FROM counter_deltas WHERE signal = 'host_swap_in_bytes'
)
SELECT
  greatest(quota.n, coalesce(swap.n, 0)) AS n,
  throttled AS cpu_periods_throttled_ratio,
  swap_in AS host_swap_in_per_s
FROM quota, swap
WHERE coalesce(throttled, swap_in) IS NOT NULL;
COMMENT ON VIEW host_limits IS 'What the host has less of than it seems: a CPU quota that was used up, memory that lies on disk.';
COMMENT ON COLUMN host_limits.cpu_periods_throttled_ratio IS '[0..1] periods of the CPU quota in which it was used up and everything stood still, since the control group began';
COMMENT ON COLUMN host_limits.host_swap_in_per_s IS '[1/s] bytes a second that came back from swap';
