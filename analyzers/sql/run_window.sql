-- requires: measured_requests samples
-- grain: one row, always
CREATE TABLE run_window AS
WITH load AS (
  SELECT min(arrival_ns) AS start_ns, max(arrival_ns) AS send_end_ns, max(end_ns) AS end_ns
  FROM measured_requests
), steps AS (
  SELECT
    signal, t_ns, value,
    lag(t_ns) OVER series AS prev_ns, lead(t_ns) OVER series AS next_ns, lag(value) OVER series AS prev
  FROM samples
  WHERE signal IN ('engine_running_count', 'engine_waiting_count', 'generation_tokens', 'requests_finished_count')
    AND engine <> ''
  WINDOW series AS (PARTITION BY signal, node, engine, replica, phase, reason, labels ORDER BY t_ns)
), busy AS (
  -- from the scrape before the first work to the one after the last: both ends are seen idle
  SELECT
    min(coalesce(prev_ns, t_ns)) AS start_ns,
    max(CASE WHEN signal LIKE 'engine_%' THEN coalesce(next_ns, t_ns) ELSE t_ns END) AS end_ns
  FROM steps
  WHERE CASE WHEN signal LIKE 'engine_%' THEN value > 0 ELSE value <> prev END
), scrapes AS (
  SELECT
    coalesce(any_value(busy.start_ns), min(t_ns)) AS start_ns,
    coalesce(any_value(busy.end_ns), max(t_ns)) AS end_ns
  FROM samples, busy WHERE engine <> ''
), span AS (
  SELECT
    coalesce(load.start_ns, scrapes.start_ns) AS start_ns,
    coalesce(load.send_end_ns, scrapes.end_ns) AS send_end_ns,
    greatest(coalesce(load.end_ns, scrapes.end_ns), coalesce(load.send_end_ns, scrapes.end_ns)) AS end_ns
  FROM load, scrapes
)
SELECT
  start_ns, send_end_ns, end_ns,
  -- lines of a log within one stamp are nanoseconds apart, so that they stay apart: no time passes between them
  CASE WHEN send_end_ns - start_ns < 1000000 THEN 0 ELSE (send_end_ns - start_ns) / 1e9 END AS sending_s,
  CASE WHEN end_ns - start_ns < 1000000 THEN 0 ELSE (end_ns - start_ns) / 1e9 END AS duration_s
FROM span;
COMMENT ON TABLE run_window IS 'The span that is judged: from the first request after the warm-up to the end of the last one; without a load generator, the span of the engine''s scrapes, without what is idle before the first work and after the last.';
COMMENT ON COLUMN run_window.send_end_ns IS '[ns] the last arrival; after it the queue only drains';
COMMENT ON COLUMN run_window.sending_s IS '[s] first to last arrival';
COMMENT ON COLUMN run_window.duration_s IS '[s] first arrival to last completion; NULL when nothing was measured';
COMMENT ON COLUMN run_window.start_ns IS '[ns] first arrival';
COMMENT ON COLUMN run_window.end_ns IS '[ns] last completion';
