-- requires: engine_state engine_limits load engine_load
-- grain: one row a scrape with waiting requests
CREATE VIEW waiting_causes AS
WITH usual AS (
  SELECT quantile_cont(running, 0.75) AS running FROM engine_state WHERE waiting > 0
)
SELECT
  t_ns, replica, e.running, waiting, kv_used_ratio,
  CASE
    WHEN e.running >= 0.95 * l.max_num_seqs_count THEN 'no_slot'
    WHEN kv_used_ratio >= 0.9 THEN 'no_kv_block'
    -- between two requests a slot looks free for one pass; the queue behind it is still longer than that
    WHEN usual.running >= 0.95 * l.max_num_seqs_count AND e.running + waiting > l.max_num_seqs_count THEN 'no_slot'
    WHEN coalesce(load.input_mean_tokens, o.engine_input_mean_tokens) >= 2 * l.token_budget_tokens THEN 'no_token_budget'
    -- with one of the three unseen, nothing can be ruled out
    WHEN l.max_num_seqs_count IS NULL OR kv_used_ratio IS NULL THEN 'unknown'
    WHEN l.token_budget_tokens IS NOT NULL AND coalesce(load.input_mean_tokens, o.engine_input_mean_tokens) IS NULL THEN 'unknown'
    ELSE 'step_in_flight'
  END AS cause
FROM engine_state e CROSS JOIN usual LEFT JOIN engine_limits l ON true LEFT JOIN load ON true
  LEFT JOIN engine_load o ON true
WHERE waiting > 0;
COMMENT ON VIEW waiting_causes IS 'Why requests waited, scrape by scrape: every slot taken; KV blocks used up; the token budget too small for the prompts; else the pass in flight has to end first.';
COMMENT ON COLUMN waiting_causes.cause IS 'no_slot, no_kv_block, no_token_budget, step_in_flight, or unknown where the batch cap, the KV gauge or the prompt lengths are';
