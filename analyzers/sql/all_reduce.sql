-- requires: setting_latest
-- grain: one row
-- signals: level 0
CREATE VIEW all_reduce AS
WITH told AS (
  SELECT
    bool_or(lower(value) = 'true') FILTER (key = 'disable_custom_all_reduce') AS refused,
    max(lower(value)) FILTER (key = 'custom_all_reduce') AS stated,
    bool_or((key = 'nccl_p2p' AND lower(value) = 'off') OR (key = 'nccl_p2p_disable' AND value NOT IN ('', '0'))) AS no_peers,
    max(try_cast(value AS DOUBLE)) FILTER (key IN ('tensor_parallel_size', 'tp_size')) AS gpus
  FROM setting_latest
)
SELECT
  1 AS n,
  CASE WHEN refused THEN 'off' WHEN stated IN ('on', 'off') THEN stated WHEN no_peers THEN 'off' END AS custom_all_reduce
FROM told
WHERE custom_all_reduce IS NOT NULL AND coalesce(gpus > 1, true);
COMMENT ON VIEW all_reduce IS 'How the GPUs that share a layer add up their parts, by settings and log.';
COMMENT ON COLUMN all_reduce.custom_all_reduce IS 'off: the engine''s own all-reduce was disabled by hand or by itself, or NCCL has no peer-to-peer between the GPUs; on: the log shows it in use; NULL where neither is told, and for one GPU. A flag that merely allows it tells nothing';
