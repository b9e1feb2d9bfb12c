-- requires: engine_state counter_deltas load run_window events samples
-- grain: one row
-- signals: level 1
CREATE TABLE kv_cache AS
WITH g AS (
  SELECT count(kv_used_ratio) AS n, avg(kv_used_ratio) AS kv_mean, max(kv_used_ratio) AS kv_max,
    quantile_cont(kv_used_ratio, 0.95) AS kv_p95
  FROM engine_state
), c AS (
  SELECT
    max(intervals) AS intervals,
    sum(delta) FILTER (signal = 'preemptions_count') AS preemptions,
    coalesce(
      sum(delta) FILTER (signal = 'prefix_hits_tokens') / nullif(sum(delta) FILTER (signal = 'prefix_queries_tokens'), 0),
      -- these count the cached among the prompt tokens; llama.cpp does not
      sum(delta) FILTER (signal = 'prompt_cached_tokens' AND engine IN ('sglang', 'tensorrt_llm'))
        / nullif(sum(delta) FILTER (signal = 'prompt_tokens' AND engine IN ('sglang', 'tensorrt_llm')), 0)
    ) AS hit,
    sum(delta) FILTER (signal = 'prompt_tokens') AS prompt_tokens,
    sum(delta) FILTER (signal = 'generation_tokens') AS generation_tokens,
    sum(delta) FILTER (signal = 'requests_finished_count') AS finished
  FROM counter_deltas
), told AS (
  -- in the window of a load where there is one; a log alone counts whole
  SELECT kind, replica, coalesce(value, 1) AS value
  FROM events, run_window w
  WHERE kind IN ('preemption', 'preemptions_so_far', 'retraction')
    AND ((SELECT count(*) FROM load) = 0 OR t_ns IS NULL OR t_ns BETWEEN w.start_ns - 1000000000 AND w.end_ns + 1000000000)
), logged AS (
  SELECT
    count(*) AS n,
    coalesce(
      sum(value) FILTER (kind = 'preemption'),
      (SELECT sum(total) FROM (SELECT max(value) AS total FROM told WHERE kind = 'preemptions_so_far' GROUP BY replica)),
      -- those that are swapped out at a time are at least as many as were preempted
      (SELECT nullif(max(value), 0) FROM samples WHERE signal = 'engine_swapped_count' AND labels LIKE '%"from":"log"%')
    ) AS preemptions,
    coalesce(
      sum(value) FILTER (kind = 'retraction'),
      (SELECT nullif(max(value), 0) FROM samples WHERE signal = 'log_retracted_count')
    ) AS retractions
  FROM told
)
SELECT
  greatest(g.n, c.intervals, logged.n) AS n,
  g.kv_mean AS kv_used_mean_ratio, g.kv_p95 AS kv_used_p95_ratio, g.kv_max AS kv_used_max_ratio,
  coalesce(c.preemptions, logged.preemptions) AS preemptions_count,
  logged.retractions AS retractions_count,
  c.preemptions / nullif(w.duration_s, 0) AS preemptions_per_s,
  c.preemptions / nullif(coalesce(load.requests_count, c.finished), 0) AS preemptions_per_request_ratio,
  c.hit AS prefix_hit_ratio,
  c.prompt_tokens / nullif(w.duration_s, 0) AS prompt_tokens_per_s,
  c.generation_tokens / nullif(w.duration_s, 0) AS generation_tokens_per_s
FROM g CROSS JOIN c CROSS JOIN logged CROSS JOIN run_window w LEFT JOIN load ON true
WHERE coalesce(g.kv_mean, c.preemptions, logged.preemptions, logged.retractions, c.hit, c.prompt_tokens, c.generation_tokens) IS NOT NULL;
COMMENT ON TABLE kv_cache IS 'The KV cache: how full, how often a running request had to give its blocks back, how much of the prompts it saved.';
COMMENT ON COLUMN kv_cache.kv_used_max_ratio IS '[0..1] highest use at a scrape';
COMMENT ON COLUMN kv_cache.preemptions_count IS '[count] requests that were preempted in the window, by the engine''s counter; without it as the log tells them, from a log alone over all of it; where it only tells of requests swapped out, the most at a time';
COMMENT ON COLUMN kv_cache.retractions_count IS '[count] running requests that SGLang''s log says were put back into the queue because the KV cache was full; NULL where it says nothing of any';
COMMENT ON COLUMN kv_cache.prefix_hit_ratio IS '[0..1] prompt tokens found in the prefix cache: hits over look-ups, else cached over all prompt tokens';
COMMENT ON COLUMN kv_cache.prompt_tokens_per_s IS '[1/s] prompt tokens, cached ones included';
COMMENT ON COLUMN kv_cache.generation_tokens_per_s IS '[1/s] generated tokens, as the engine counts';
COMMENT ON COLUMN kv_cache.kv_used_mean_ratio IS '[0..1] mean use';
COMMENT ON COLUMN kv_cache.kv_used_p95_ratio IS '[0..1] 95th percentile of the use';
COMMENT ON COLUMN kv_cache.preemptions_per_s IS '[1/s] preemptions';
COMMENT ON COLUMN kv_cache.preemptions_per_request_ratio IS '[ratio] preemptions a request';
