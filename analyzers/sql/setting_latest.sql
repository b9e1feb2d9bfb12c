-- requires: settings
-- grain: one row a setting key
CREATE VIEW setting_latest AS
SELECT key, value, origin, source, engine, replica
FROM settings
QUALIFY row_number() OVER (
  PARTITION BY key
  ORDER BY CASE origin WHEN 'effective' THEN 0 WHEN 'requested' THEN 1 ELSE 2 END, t_ns DESC
) = 1;
COMMENT ON VIEW setting_latest IS 'Each engine setting as it holds: what the engine says is in effect wins over what was asked for, and that over a default.';
