-- requires: samples
-- grain: one row a statistics line of an engine's log
CREATE VIEW log_lines AS
SELECT
  t_ns, replica,
  max(value) FILTER (signal = 'engine_running_count') AS running,
  max(value) FILTER (signal = 'engine_waiting_count') AS waiting,
  max(value) FILTER (signal = 'log_generation_tokens_per_s') AS generated,
  max(value) FILTER (signal = 'log_prompt_tokens_per_s') AS prompted,
  max(value) FILTER (signal = 'prefix_hit_ratio') AS hits,
  max(value) FILTER (signal = 'log_graph_used_ratio') AS graphed,
  max(value) FILTER (signal = 'kv_used_tokens') AS tokens,
  max(value) FILTER (signal = 'log_spec_length_count') AS per_step
FROM samples
WHERE labels LIKE '%"from":"log"%'
GROUP BY t_ns, replica;
COMMENT ON VIEW log_lines IS 'What each statistics line of an engine''s log states; NULL where a line does not have it.';
COMMENT ON COLUMN log_lines.t_ns IS '[ns] time of the line';
COMMENT ON COLUMN log_lines.running IS '[count] requests in the batch';
COMMENT ON COLUMN log_lines.waiting IS '[count] requests queued in the engine';
COMMENT ON COLUMN log_lines.generated IS '[1/s] tokens generated';
COMMENT ON COLUMN log_lines.prompted IS '[1/s] prompt tokens computed';
COMMENT ON COLUMN log_lines.hits IS '[0..1] prompt tokens found in the prefix cache';
COMMENT ON COLUMN log_lines.graphed IS '[0..1] whether the step was replayed from a graph';
COMMENT ON COLUMN log_lines.tokens IS '[tokens] in the KV cache of the requests that run';
COMMENT ON COLUMN log_lines.per_step IS '[count] tokens that a step makes of a request, with speculation';
