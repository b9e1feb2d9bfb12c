-- requires: samples run_window
-- grain: one row
-- signals: level 1
CREATE VIEW cache_state AS
WITH steps AS (
  SELECT
    signal, t_ns, value,
    lag(t_ns) OVER series AS prev_ns, lag(value) OVER series AS prev
  FROM samples
  WHERE signal IN ('prefix_hits_tokens', 'prefix_queries_tokens')
  WINDOW series AS (PARTITION BY signal, node, engine, replica, phase, reason, labels ORDER BY t_ns)
), grown AS (
  SELECT
    signal, (prev_ns + t_ns) / 2 < (w.start_ns + w.send_end_ns) / 2 AS early,
    CASE WHEN value < prev THEN value ELSE value - prev END AS delta
  FROM steps, run_window w
  WHERE prev_ns IS NOT NULL AND (prev_ns + t_ns) / 2 BETWEEN w.start_ns AND w.send_end_ns
), halves AS (
  SELECT
    count(*) AS n,
    sum(delta) FILTER (signal = 'prefix_hits_tokens' AND early)
      / nullif(sum(delta) FILTER (signal = 'prefix_queries_tokens' AND early), 0) AS first,
    sum(delta) FILTER (signal = 'prefix_hits_tokens' AND NOT early)
      / nullif(sum(delta) FILTER (signal = 'prefix_queries_tokens' AND NOT early), 0) AS last
  FROM grown
)
SELECT n, first AS prefix_hit_first_ratio, last AS prefix_hit_last_ratio, abs(last - first) AS prefix_hit_change_ratio
FROM halves
WHERE n > 0 AND coalesce(first, last) IS NOT NULL;
COMMENT ON VIEW cache_state IS 'Was the prefix cache in the same state all along? First and second half of the time in which requests were sent.';
COMMENT ON COLUMN cache_state.prefix_hit_first_ratio IS '[0..1] prompt tokens found in the prefix cache, first half';
COMMENT ON COLUMN cache_state.prefix_hit_last_ratio IS '[0..1] prompt tokens found in the prefix cache, second half';
COMMENT ON COLUMN cache_state.prefix_hit_change_ratio IS '[ratio] difference of the two; NULL where one half looked nothing up';
