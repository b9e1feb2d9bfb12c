-- requires: measured_requests samples
-- grain: one row, always
CREATE TABLE run_window AS
WITH load AS (
  SELECT min(arrival_ns) AS start_ns, max(arrival_ns) AS send_end_ns, max(end_ns) AS end_ns
  FROM measured_requests
), scrapes AS (
  SELECT min(t_ns) AS start_ns, max(t_ns) AS end_ns FROM samples WHERE engine <> ''
), span AS (
  SELECT
    coalesce(load.start_ns, scrapes.start_ns) AS start_ns,
    coalesce(load.send_end_ns, scrapes.end_ns) AS send_end_ns,
    greatest(coalesce(load.end_ns, scrapes.end_ns), coalesce(load.send_end_ns, scrapes.end_ns)) AS end_ns
  FROM load, scrapes
)
SELECT
  start_ns, send_end_ns, end_ns,
  (send_end_ns - start_ns) / 1e9 AS sending_s,
  (end_ns - start_ns) / 1e9 AS duration_s
FROM span;
COMMENT ON TABLE run_window IS 'The span that is judged: from the first request after the warm-up to the end of the last one; without a load generator, the span of the engine''s scrapes.';
COMMENT ON COLUMN run_window.send_end_ns IS '[ns] the last arrival; after it the queue only drains';
COMMENT ON COLUMN run_window.sending_s IS '[s] first to last arrival';
COMMENT ON COLUMN run_window.duration_s IS '[s] first arrival to last completion; NULL when nothing was measured';
COMMENT ON COLUMN run_window.start_ns IS '[ns] first arrival';
COMMENT ON COLUMN run_window.end_ns IS '[ns] last completion';
