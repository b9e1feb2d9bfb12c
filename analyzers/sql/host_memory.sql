-- requires: samples setting_latest
-- grain: one row
-- signals: level 0
CREATE VIEW host_memory AS
WITH told AS (
  SELECT
    bool_or(
      (key IN ('weights_on_host', 'cpu_moe') AND lower(value) = 'true')
      OR (key IN ('cpu_offload_gb', 'n_cpu_moe') AND try_cast(value AS DOUBLE) > 0)
      OR (key = 'override_tensor' AND regexp_matches(value, '=\s*(CPU|\w+_Host)\b', 'i'))
    ) AS parted,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'offloaded_layers') AS on_device,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'model_layers') AS layers,
    bool_or(try_cast(value AS DOUBLE) = 0) FILTER (key = 'cpu_offload_gb' AND origin <> 'default') AS refused
  FROM setting_latest
), held AS (
  SELECT
    count(*) AS n,
    -- every worker of vLLM tells of its own
    max(value) FILTER (signal = 'log_weights_host_bytes') AS weights,
    sum(value) FILTER (signal = 'log_kv_host_bytes') AS kv
  FROM samples WHERE signal IN ('log_weights_host_bytes', 'log_kv_host_bytes') AND value > 0
)
SELECT
  greatest(held.n, 1) AS n,
  CASE WHEN parted OR weights > 0 OR on_device < layers THEN 'yes' WHEN on_device >= layers OR refused THEN 'no' END AS weights_on_host,
  -- without a layer on the device host memory is where everything belongs
  CASE WHEN coalesce(weights, CASE WHEN on_device > 0 THEN kv END) IS NOT NULL
    THEN coalesce(weights, 0) + coalesce(CASE WHEN on_device > 0 THEN kv END, 0) END AS spilled_bytes
FROM told, held
WHERE weights_on_host IS NOT NULL OR spilled_bytes IS NOT NULL;
COMMENT ON VIEW host_memory IS 'What of model and cache lies in host memory while the rest is on a device, by settings and log.';
COMMENT ON COLUMN host_memory.weights_on_host IS 'yes: part of the weights is read from host memory at every step (fewer layers on the device than there are, tensors or experts kept on the CPU, --cpu-offload-gb); no: the log says that all layers are on the device, or --cpu-offload-gb 0; NULL where nothing tells';
COMMENT ON COLUMN host_memory.spilled_bytes IS '[bytes] of weights and cache that the engine says it holds in host memory: weights of one vLLM worker, keys and values of llama.cpp beside layers on a device; what a driver moves by itself is not in it';
