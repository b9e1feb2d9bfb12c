-- requires: log_lines events
-- grain: one row
-- signals: level 1
CREATE VIEW log_batches AS
WITH placed AS (
  SELECT *, count(generated) OVER (PARTITION BY replica ORDER BY t_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS place
  FROM log_lines
), told AS (
  SELECT *, lag(running) OVER (PARTITION BY replica ORDER BY t_ns) AS before
  FROM (
    SELECT *, bool_or(running = 0 AND generated IS NULL) OVER (PARTITION BY replica, place) AS idle_since FROM placed
  )
  WHERE generated IS NOT NULL
), busy AS (
  -- A line whose interval began with nothing to do states a rate that no request had. Its count is that at the
  -- end of the interval: between the two ends lies what ran, at least and at most.
  SELECT
    replica, waiting, generated,
    CASE WHEN before > running THEN before ELSE running END AS most,
    CASE WHEN before < running THEN before ELSE running END AS fewest
  FROM told
  WHERE running >= 1 AND NOT coalesce(idle_since, false)
    AND CASE WHEN before IS NULL
      THEN NOT EXISTS (SELECT 1 FROM events e WHERE e.kind = 'engine_started' AND e.replica = told.replica AND e.t_ns <= told.t_ns)
      ELSE before > 0 END
), best AS (
  SELECT replica, most, max(generated) AS together, max(generated) / most AS each_one FROM busy GROUP BY replica, most
), could AS (
  SELECT
    replica, fewest,
    max(CASE WHEN most <= fewest THEN together ELSE fewest * each_one END) AS generated
  FROM (SELECT DISTINCT replica, fewest FROM busy) JOIN best USING (replica)
  GROUP BY replica, fewest
)
SELECT
  count(*) AS n,
  (SELECT avg(graphed) FROM log_lines WHERE running > 0) AS graph_replayed_ratio,
  2 * sum(busy.generated) / nullif(sum(most + fewest), 0) AS generation_per_running_per_s,
  CASE WHEN count(waiting) >= 2
    THEN count_if(waiting = 0 AND busy.generated <= 0.1 * could.generated)::DOUBLE / count(waiting) END AS stalled_generation_ratio
FROM busy JOIN could USING (replica, fewest)
HAVING count(*) > 0 OR graph_replayed_ratio IS NOT NULL;
COMMENT ON VIEW log_batches IS 'What the statistics lines of an engine''s log say of its decode steps, over lines with requests running whose interval did not begin idle.';
COMMENT ON COLUMN log_batches.graph_replayed_ratio IS '[0..1] decode lines whose step was replayed from a captured graph; only SGLang tells, at one step of many';
COMMENT ON COLUMN log_batches.generation_per_running_per_s IS '[1/s] tokens a second that a running request got: the rates of all lines over their running requests, of which a line has the mean of both ends of its interval';
COMMENT ON COLUMN log_batches.stalled_generation_ratio IS '[0..1] lines with requests running and none waiting that generate at most a tenth of what the same engine''s best line says they could: a batch makes at least as much as a smaller one, and each of its requests at least as much as one of a larger. Relative to the log itself: where every line is slow, none stands out. NULL below two lines';
