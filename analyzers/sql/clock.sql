-- requires: request_latest
-- grain: one row
-- signals: level 1
CREATE VIEW clock AS
WITH pairs AS (
  SELECT
    s.arrival_ns - c.sent_ns AS earliest,
    s.end_ns - c.end_ns AS latest
  FROM request_latest s
  JOIN request_latest c ON c.request_id = s.request_id AND c.source = 'client'
  WHERE s.source = 'span' AND c.status = 'ok'
), bound AS (
  SELECT count(*) AS n, max(latest) / 1e9 AS low, min(earliest) / 1e9 AS high
  FROM pairs WHERE earliest IS NOT NULL AND latest IS NOT NULL
)
SELECT
  n,
  (low + high) / 2 AS server_clock_offset_s,
  least(low, high) AS low_server_clock_offset_s,
  greatest(low, high) AS high_server_clock_offset_s,
  abs(high - low) / 2 AS server_clock_error_s
FROM bound WHERE n > 0;
COMMENT ON VIEW clock IS 'How far the server''s clock is from the client''s: a request cannot reach the server before it was sent, nor end there after its answer came, so every request bounds the offset from both sides. Phases are durations from one clock each and do not depend on it.';
COMMENT ON COLUMN clock.server_clock_offset_s IS '[s] server minus client clock, the middle of the bounds; NULL without spans';
COMMENT ON COLUMN clock.server_clock_error_s IS '[s] half the width of the bounds: two events of the two clocks closer than this are not ordered';
