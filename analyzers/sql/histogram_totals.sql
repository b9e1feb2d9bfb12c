-- requires: run_window histograms
-- grain: one row a histogram series
CREATE TABLE histogram_totals AS
WITH steps AS (
  SELECT
    signal, unit, node, engine, replica, phase, reason, labels, t_ns, "sum", "count",
    lag(t_ns) OVER series AS prev_ns,
    lag("sum") OVER series AS prev_sum,
    lag("count") OVER series AS prev_count
  FROM histograms
  WINDOW series AS (PARTITION BY signal, node, engine, replica, phase, reason, labels ORDER BY t_ns)
), grown AS (
  SELECT
    * EXCLUDE ("sum", "count"),
    CASE WHEN "count" < prev_count THEN "sum" ELSE "sum" - prev_sum END AS dsum,
    CASE WHEN "count" < prev_count THEN "count" ELSE "count" - prev_count END AS dcount
  FROM steps
  WHERE prev_ns IS NOT NULL
)
SELECT
  signal, unit, node, engine, replica, phase, reason, labels,
  sum(dsum) AS total, sum(dcount) AS observations,
  CASE WHEN sum(dcount) > 0 THEN sum(dsum) / sum(dcount) END AS mean
FROM grown, run_window w
WHERE t_ns > w.start_ns AND t_ns <= w.end_ns + 2000000000
GROUP BY ALL;
COMMENT ON TABLE histogram_totals IS 'Sum, count and mean of what each histogram observed inside the window. Means come from sum/count: bucket bounds of engines are too coarse below 0.3 s for quantiles.';
COMMENT ON COLUMN histogram_totals.total IS 'sum of the observations, in `unit`';
COMMENT ON COLUMN histogram_totals.mean IS 'mean observation, in `unit`; NULL when nothing was observed';
COMMENT ON COLUMN histogram_totals.observations IS 'number of observations';
