-- requires: setting_latest settings engine_state
-- grain: one row
-- signals: level 0
CREATE TABLE engine_limits AS
WITH told AS (
  -- 0, below it or no number is no limit: -1 is how some engines say so
  SELECT key, value, origin, replica, try_cast(value AS DOUBLE) AS any_number,
    CASE WHEN isfinite(try_cast(value AS DOUBLE)) AND try_cast(value AS DOUBLE) > 0 THEN try_cast(value AS DOUBLE) END AS number
  FROM setting_latest
), s AS (
  SELECT
    max(number) FILTER (key IN ('max_num_seqs', 'max_running_requests', 'max_batch_size', 'parallel')) AS cap,
    max(number) FILTER (key IN ('max_num_batched_tokens', 'chunked_prefill_size', 'max_num_tokens')) AS budget,
    max(number) FILTER (key IN ('kv_cache_tokens', 'kv_cache_size_tokens')) AS kv_tokens,
    max(number) FILTER (key = 'num_gpu_blocks_override') AS blocks_override,
    max(number) FILTER (key = 'num_gpu_blocks') AS blocks,
    max(number) FILTER (key IN ('block_size', 'page_size')) AS block_size,
    any_value(upper(value)) FILTER (key = 'cudagraph_mode') AS graph_mode,
    bool_or(lower(value) = 'true') FILTER (key IN ('enforce_eager', 'disable_cuda_graph', 'disable_decode_cuda_graph')) AS graphs_off,
    bool_or(lower(value) = 'true') FILTER (key = 'enable_chunked_prefill') AS chunked,
    max(any_number) FILTER (key = 'chunked_prefill_size') AS chunk,
    bool_or(lower(value) = 'true') FILTER (key = 'enable_prefix_caching') AS prefix_on,
    bool_or(lower(value) = 'true') FILTER (key = 'disable_radix_cache') AS prefix_off,
    bool_or(lower(value) = 'true') FILTER (key = 'async_scheduling') AS async_on,
    bool_or(lower(value) = 'true') FILTER (key IN ('disable_overlap_schedule', 'disable_overlap_scheduler')) AS async_off,
    bool_or(lower(value) NOT IN ('', 'none', 'null', 'false')) FILTER (key IN ('speculative_config', 'speculative_algorithm', 'speculative_model')) AS speculates,
    max(number) FILTER (key IN ('tensor_parallel_size', 'tp_size')) AS tp,
    max(number) FILTER (key = 'gpu_count') AS gpus,
    max(number) FILTER (key = 'max_concurrency') AS room,
    max(number) FILTER (key IN ('max_model_len', 'context_len', 'context_length', 'max_seq_len')) AS longest,
    max(number) FILTER (key IN ('omp_num_threads', 'torch_threads')) AS threads,
    coalesce(max(number) FILTER (key = 'dp_size' AND EXISTS (
      SELECT 1 FROM told WHERE key = 'enable_dp_attention' AND lower(value) = 'true')), 1) AS schedulers,
    coalesce(
      max(number) FILTER (key = 'num_speculative_tokens'),
      max(try_cast(regexp_extract(value, 'num_spec(?:ulative)?_tokens\W{1,4}(\d{1,3})', 1) AS DOUBLE))
        FILTER (key = 'speculative_config'),
      0
    ) AS drafts
  FROM told
), sizes AS (
  -- the list that was captured, then what the engine says of its settings, then what was asked for
  SELECT
    CASE WHEN origin = 'effective' AND key = 'graph_max_batch' THEN 0 WHEN origin = 'effective' THEN 1 ELSE 2 END AS place,
    list_max(CAST(regexp_extract_all(
      CASE WHEN key = 'compilation_config'
        THEN regexp_extract(value, 'cudagraph_capture_sizes?\W{1,4}([\d, ]+)', 1) ELSE value END,
      '\d{1,7}'
    ) AS DOUBLE[])) AS size
  FROM told
  WHERE origin <> 'default' AND key IN (
    'graph_max_batch', 'cudagraph_capture_sizes', 'max_cudagraph_capture_size', 'cuda_graph_sizes', 'compilation_config',
    'compilation_config.cudagraph_capture_sizes', 'compilation_config.max_cudagraph_capture_size',
    'cuda_graph_bs', 'cuda_graph_max_bs', 'cuda_graph_bs_decode', 'cuda_graph_max_bs_decode', 'cuda_graphs'
  )
), graph AS (
  SELECT coalesce(max(size) FILTER (place = 0), max(size) FILTER (place = 1), max(size) FILTER (place = 2)) AS size
  FROM sizes WHERE size > 0
), asked AS (
  SELECT max(try_cast(x.value AS DOUBLE)) AS cap
  FROM settings x JOIN told l ON l.key = x.key
  WHERE x.key IN ('max_num_seqs', 'max_running_requests', 'max_batch_size', 'parallel')
    AND l.origin = 'effective' AND (x.replica = l.replica OR '' IN (x.replica, l.replica))
    -- SGLang's log repeats what was asked for before it says what holds
    AND (x.origin = 'requested' OR (x.origin = 'effective' AND x.engine = 'sglang'))
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
  coalesce(s.kv_tokens, coalesce(s.blocks, s.blocks_override) * s.block_size) AS kv_capacity_tokens,
  -- the mode as resolved says more than the flag: graphs may be off without --enforce-eager
  CASE coalesce(s.graph_mode <> 'NONE' AND NOT coalesce(s.graphs_off, false), NOT s.graphs_off)
    WHEN true THEN 'yes' WHEN false THEN 'no' END AS graphs_enabled,
  CASE coalesce(s.chunked, s.chunk > 0) WHEN true THEN 'yes' WHEN false THEN 'no' END AS chunked_prefill_enabled,
  CASE coalesce(s.prefix_on, NOT s.prefix_off) WHEN true THEN 'yes' WHEN false THEN 'no' END AS prefix_caching_enabled,
  CASE coalesce(s.async_on, NOT s.async_off) WHEN true THEN 'yes' WHEN false THEN 'no' END AS async_scheduling_enabled,
  CASE s.speculates WHEN true THEN 'yes' WHEN false THEN 'no' END AS speculation_enabled,
  s.tp AS tensor_parallel_count,
  s.gpus AS gpu_count,
  -- vLLM's sizes are tokens, and with speculation a request has several a step
  CASE WHEN graphs_enabled IS DISTINCT FROM 'no' THEN floor(graph.size / (1 + s.drafts)) END AS graph_max_batch_count,
  CASE WHEN asked.cap / s.schedulers > s.cap THEN asked.cap / s.schedulers END AS max_num_seqs_asked_count,
  coalesce(s.room, coalesce(s.kv_tokens, coalesce(s.blocks, s.blocks_override) * s.block_size) / s.longest) AS kv_room_ratio,
  s.threads AS cpu_threads_count
FROM s, graph, asked LEFT JOIN plateau ON true
WHERE coalesce(graph_max_batch_count, kv_room_ratio, cpu_threads_count) IS NOT NULL OR coalesce(s.cap, plateau.cap, s.budget, s.kv_tokens, coalesce(s.blocks, s.blocks_override) * s.block_size) IS NOT NULL
  OR graphs_enabled IS NOT NULL OR chunked_prefill_enabled IS NOT NULL OR prefix_caching_enabled IS NOT NULL
  OR async_scheduling_enabled IS NOT NULL OR speculation_enabled IS NOT NULL OR coalesce(s.tp, s.gpus) IS NOT NULL;
COMMENT ON TABLE engine_limits IS 'The limits that the scheduler works under, from settings; where the batch cap is unknown it is read off the plateau that running requests never exceed while others wait.';
COMMENT ON COLUMN engine_limits.max_num_seqs_count IS '[count] requests that may run at once (vLLM --max-num-seqs)';
COMMENT ON COLUMN engine_limits.max_num_seqs_origin IS 'setting, or plateau: inferred from the running gauge';
COMMENT ON COLUMN engine_limits.token_budget_tokens IS '[tokens] tokens a step (vLLM --max-num-batched-tokens)';
COMMENT ON COLUMN engine_limits.kv_capacity_tokens IS '[tokens] whose keys and values fit: as the engine logs it, else KV blocks times block size';
COMMENT ON COLUMN engine_limits.graphs_enabled IS 'yes or no: CUDA graphs for decode; NULL where the engine does not tell';
COMMENT ON COLUMN engine_limits.chunked_prefill_enabled IS 'yes or no: prompts may be split over steps; NULL where the engine does not tell';
COMMENT ON COLUMN engine_limits.prefix_caching_enabled IS 'yes or no: prompts reuse the KV cache of earlier ones; NULL where the engine does not tell';
COMMENT ON COLUMN engine_limits.async_scheduling_enabled IS 'yes or no: the host prepares a step while the device runs the one before; NULL where the engine does not tell';
COMMENT ON COLUMN engine_limits.speculation_enabled IS 'yes or no: tokens are guessed ahead and verified; NULL where the engine does not tell';
COMMENT ON COLUMN engine_limits.tensor_parallel_count IS '[count] GPUs that share each layer';
COMMENT ON COLUMN engine_limits.gpu_count IS '[count] GPUs of the machine that were seen, in use or not';
COMMENT ON COLUMN engine_limits.graph_max_batch_count IS '[count] largest batch of decoding requests for which a CUDA graph was captured; a larger one runs without. As logged, else as asked for; of vLLM''s sizes, which are tokens, divided by those that a request verifies a step; NULL where graphs are off or nothing tells';
COMMENT ON COLUMN engine_limits.max_num_seqs_asked_count IS '[count] batch cap that was asked for of one scheduler, where the engine took less; NULL where it took what was asked';
COMMENT ON COLUMN engine_limits.kv_room_ratio IS '[ratio] requests of full length whose keys and values fit at once, may exceed 1: as the engine logs it, else the capacity over the longest sequence';
COMMENT ON COLUMN engine_limits.cpu_threads_count IS '[count] threads of a process''s compute pool: OMP_NUM_THREADS, else as the engine logs that it set them';
