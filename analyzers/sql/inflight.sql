-- requires: measured_requests
-- grain: one row an arrival
CREATE VIEW inflight AS
WITH edges AS (
  SELECT arrival_ns AS t_ns, 1 AS d FROM measured_requests
  UNION ALL
  SELECT end_ns, -1 FROM measured_requests WHERE end_ns IS NOT NULL AND status <> 'unfinished'
), levels AS (
  SELECT t_ns, sum(sum(d)) OVER (ORDER BY t_ns) AS level, max(d) AS arrives FROM edges GROUP BY t_ns
)
SELECT t_ns, level::DOUBLE AS inflight_count FROM levels WHERE arrives = 1;
COMMENT ON VIEW inflight IS 'How many requests were in flight, from the client, at each arrival: waiting, running or on their way.';
COMMENT ON COLUMN inflight.t_ns IS '[ns] the arrival';
COMMENT ON COLUMN inflight.inflight_count IS '[count] requests begun and not ended, the arriving one included';
