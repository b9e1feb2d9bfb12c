-- requires: setting_latest engine_state
-- grain: one row
-- signals: level 0
CREATE TABLE engine_limits AS
WITH s AS (
  SELECT
    max(try_cast(value AS DOUBLE)) FILTER (key IN ('max_num_seqs', 'max_running_requests', 'max_batch_size', 'parallel')) AS cap,
    max(try_cast(value AS DOUBLE)) FILTER (key IN ('max_num_batched_tokens', 'chunked_prefill_size', 'max_num_tokens')) AS budget,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'num_gpu_blocks_override') AS blocks_override,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'num_gpu_blocks') AS blocks,
    max(try_cast(value AS DOUBLE)) FILTER (key IN ('block_size', 'page_size')) AS block_size
  FROM setting_latest
), plateau AS (
  SELECT max(running) AS cap
  FROM engine_state WHERE waiting > 0
  HAVING count(*) >= 10 AND count_if(running = (SELECT max(running) FROM engine_state)) >= 0.6 * count(*)
)
SELECT
  1 AS n,
  coalesce(s.cap, plateau.cap) AS max_num_seqs_count,
  CASE WHEN s.cap IS NOT NULL THEN 'setting' WHEN plateau.cap IS NOT NULL THEN 'plateau' END AS max_num_seqs_origin,
  s.budget AS token_budget_tokens,
  coalesce(s.blocks, s.blocks_override) * s.block_size AS kv_capacity_tokens
FROM s LEFT JOIN plateau ON true
WHERE coalesce(s.cap, plateau.cap, s.budget, coalesce(s.blocks, s.blocks_override) * s.block_size) IS NOT NULL;
COMMENT ON TABLE engine_limits IS 'The limits that the scheduler works under, from settings; where the batch cap is unknown it is read off the plateau that running requests never exceed while others wait.';
COMMENT ON COLUMN engine_limits.max_num_seqs_count IS '[count] requests that may run at once (vLLM --max-num-seqs)';
COMMENT ON COLUMN engine_limits.max_num_seqs_origin IS 'setting, or plateau: inferred from the running gauge';
COMMENT ON COLUMN engine_limits.token_budget_tokens IS '[tokens] tokens a step (vLLM --max-num-batched-tokens)';
COMMENT ON COLUMN engine_limits.kv_capacity_tokens IS '[tokens] KV blocks times block size';
