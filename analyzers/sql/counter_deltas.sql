-- requires: run_window samples
-- grain: one row a counter series
CREATE TABLE counter_deltas AS
WITH steps AS (
  SELECT
    signal, unit, node, engine, replica, phase, reason, labels, t_ns, value,
    lag(t_ns) OVER series AS prev_ns,
    lag(value) OVER series AS prev
  FROM samples
  WHERE kind = 'counter'
  WINDOW series AS (PARTITION BY signal, node, engine, replica, phase, reason, labels ORDER BY t_ns)
)
SELECT
  signal, unit, node, engine, replica, phase, reason, labels,
  sum(CASE WHEN value < prev THEN value ELSE value - prev END) AS delta,
  count_if(value < prev) AS resets,
  count(*) AS intervals,
  sum(t_ns - prev_ns) / 1e9 AS span_s
FROM steps, run_window w
WHERE prev_ns IS NOT NULL AND (prev_ns + t_ns) / 2 BETWEEN w.start_ns AND w.end_ns + 1000000000
GROUP BY ALL;
COMMENT ON TABLE counter_deltas IS 'How much each counter grew inside the window: differences scrape by scrape, so that an engine restart (the counter falls) costs one interval and never gives a negative rate.';
COMMENT ON COLUMN counter_deltas.delta IS 'growth in `unit`; a reset counts what was reached since';
COMMENT ON COLUMN counter_deltas.resets IS 'how often the counter fell';
COMMENT ON COLUMN counter_deltas.span_s IS '[s] time covered by the differences';
COMMENT ON COLUMN counter_deltas.intervals IS 'scrape intervals summed';
