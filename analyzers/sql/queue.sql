-- requires: engine_state engine_limits waiting_causes histogram_totals run_window load engine_load
-- grain: one row
-- signals: level 1
CREATE TABLE queue AS
WITH g AS (
  SELECT
    count(*) AS n,
    avg(running) AS running, max(running) AS running_max, avg(waiting) AS waiting, max(waiting) AS waiting_max,
    count_if(waiting > 0)::DOUBLE / nullif(count_if(running > 0 OR waiting > 0), 0) AS waiting_busy,
    quantile_cont(running, 0.75) FILTER (waiting > 0) AS running_while_waiting,
    avg(running) FILTER (kv_used_ratio >= 0.85) AS running_kv_full,
    CASE WHEN max(t_ns) - min(t_ns) >= 1000000
      THEN nullif(regr_slope(waiting, (t_ns - w.start_ns) / 1e9), 'nan') END AS growth
  FROM engine_state, run_window w
), little AS (
  SELECT
    sum(total) FILTER (signal = 'inference_s') / nullif(any_value(w.duration_s), 0) AS running,
    sum(total) FILTER (signal = 'queue_s') / nullif(any_value(w.duration_s), 0) AS waiting
  FROM histogram_totals, run_window w
), causes AS (
  -- no share where no cause is known at all: then 0 would deny what was not seen
  SELECT
    sum(waiting) AS total,
    coalesce(sum(waiting) FILTER (cause = 'no_slot'), 0) AS no_slot,
    coalesce(sum(waiting) FILTER (cause = 'no_kv_block'), 0) AS no_kv_block,
    coalesce(sum(waiting) FILTER (cause = 'no_token_budget'), 0) AS no_token_budget,
    coalesce(sum(waiting) FILTER (cause = 'step_in_flight'), 0) AS step_in_flight
  FROM waiting_causes HAVING count_if(cause <> 'unknown') > 0
)
SELECT
  g.n AS n,
  coalesce(little.running, g.running) AS running_mean_count,
  g.running_max AS running_max_count,
  coalesce(little.waiting, g.waiting) AS waiting_mean_count,
  g.waiting_max AS waiting_max_count,
  g.waiting_busy AS waiting_busy_ratio,
  CASE WHEN g.running_while_waiting > l.max_num_seqs_count THEN 1
    ELSE g.running_while_waiting / nullif(l.max_num_seqs_count, 0) END AS slots_used_ratio,
  g.growth AS queue_growth_per_s,
  g.running_kv_full AS running_while_kv_full_count,
  causes.no_slot / nullif(causes.total, 0) AS waiting_no_slot_ratio,
  causes.no_kv_block / nullif(causes.total, 0) AS waiting_no_kv_block_ratio,
  causes.no_token_budget / nullif(causes.total, 0) AS waiting_no_token_budget_ratio,
  causes.step_in_flight / nullif(causes.total, 0) AS waiting_step_in_flight_ratio,
  coalesce(load.input_mean_tokens, o.engine_input_mean_tokens) / nullif(l.token_budget_tokens, 0) AS chunks_per_prompt_ratio
FROM g, little LEFT JOIN causes ON true LEFT JOIN engine_limits l ON true LEFT JOIN load ON true
  LEFT JOIN engine_load o ON true
WHERE g.n > 0;
COMMENT ON TABLE queue IS 'The engine''s queue and batch. Means are by Little''s law on the engine''s own phase sums where it has them: a scraper that is starved of CPU samples idle instants.';
COMMENT ON COLUMN queue.running_mean_count IS '[count] mean requests in the batch';
COMMENT ON COLUMN queue.waiting_mean_count IS '[count] mean requests queued';
COMMENT ON COLUMN queue.waiting_busy_ratio IS '[0..1] share of busy scrapes with requests waiting';
COMMENT ON COLUMN queue.slots_used_ratio IS '[0..1] batch over batch cap at scrapes where others waited (75th percentile: a scrape between two requests sees a free slot)';
COMMENT ON COLUMN queue.queue_growth_per_s IS '[1/s] slope of the waiting requests over time';
COMMENT ON COLUMN queue.waiting_no_slot_ratio IS '[0..1] share of the waiting that happened with every slot taken';
COMMENT ON COLUMN queue.waiting_no_kv_block_ratio IS '[0..1] share of the waiting with free slots and a full KV cache';
COMMENT ON COLUMN queue.waiting_no_token_budget_ratio IS '[0..1] share of the waiting with free slots and prompts of several budgets';
COMMENT ON COLUMN queue.waiting_step_in_flight_ratio IS '[0..1] share of the waiting with free slots and nothing else short';
COMMENT ON COLUMN queue.chunks_per_prompt_ratio IS '[ratio] mean prompt over token budget: steps that a prompt needs';
COMMENT ON COLUMN queue.running_max_count IS '[count] largest batch at a scrape';
COMMENT ON COLUMN queue.waiting_max_count IS '[count] longest queue at a scrape';
COMMENT ON COLUMN queue.running_while_kv_full_count IS '[count] mean batch at scrapes with the KV cache at least 85 % full: what the cache really carries; NULL when it never was';
