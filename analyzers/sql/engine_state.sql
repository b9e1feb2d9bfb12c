-- requires: run_window samples
-- grain: one row a scrape of one engine, while load was offered
CREATE TABLE engine_state AS
WITH told AS (
  SELECT t_ns, node, replica, signal, value, coalesce(labels LIKE '%"from":"log"%', false) AS logged
  FROM samples
  WHERE signal IN ('engine_running_count', 'engine_waiting_count', 'kv_used_ratio')
)
SELECT
  t_ns, node, replica,
  max(value) FILTER (signal = 'engine_running_count') AS running,
  max(value) FILTER (signal = 'engine_waiting_count') AS waiting,
  max(value) FILTER (signal = 'kv_used_ratio') AS kv_used_ratio
FROM told, run_window w
WHERE (NOT logged OR (SELECT bool_and(logged) FROM told))
  AND t_ns BETWEEN w.start_ns AND w.send_end_ns
GROUP BY ALL;
COMMENT ON TABLE engine_state IS 'Running and waiting requests and KV cache use of each engine at each scrape, between the first and the last arrival; from the engine''s log where nothing was scraped.';
COMMENT ON COLUMN engine_state.running IS '[count] requests in the batch';
COMMENT ON COLUMN engine_state.waiting IS '[count] requests queued in the engine';
COMMENT ON COLUMN engine_state.kv_used_ratio IS '[0..1] KV blocks in use; NULL where the engine has no such gauge';
COMMENT ON COLUMN engine_state.t_ns IS '[ns] scrape time';
