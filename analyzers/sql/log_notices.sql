-- requires: events
-- grain: one row
-- signals: level 1
CREATE VIEW log_notices AS
WITH ready AS (
  SELECT replica, min(t_ns) AS ready_ns FROM events WHERE kind = 'engine_started' GROUP BY replica
), told AS (
  SELECT
    count(*) AS n,
    -- SGLang compiles before it is ready too, with the same words; vLLM's say that requests waited
    count_if(kind = 'jit_compile' AND (engine = 'vllm' OR e.t_ns > ready_ns)) AS compiled,
    bool_or(kind = 'moe_default_config') AS moe_default,
    bool_or(kind = 'slow_tokenizer') AS slow_tokenizer
  FROM events e LEFT JOIN ready r ON r.replica = e.replica
  WHERE kind IN ('jit_compile', 'moe_default_config', 'slow_tokenizer')
)
SELECT
  n,
  CASE WHEN compiled > 0 THEN compiled::DOUBLE END AS jit_compiles_count,
  CASE WHEN moe_default THEN 'yes' END AS moe_default_config,
  CASE WHEN slow_tokenizer THEN 'yes' END AS slow_tokenizer
FROM told WHERE compiled > 0 OR moe_default OR slow_tokenizer;
COMMENT ON VIEW log_notices IS 'What an engine''s log warns of. Silence is no denial: not every release has the line.';
COMMENT ON COLUMN log_notices.jit_compiles_count IS '[count] kernels that were compiled while requests were served, each kernel once a second at most; NULL where the log tells of none';
COMMENT ON COLUMN log_notices.moe_default_config IS 'yes: the engine has no tuned configuration of its MoE kernel for this device and shape; NULL where it does not say so';
COMMENT ON COLUMN log_notices.slow_tokenizer IS 'yes: the engine runs a tokenizer without a compiled backend; NULL where it does not say so';
