-- requires: counter_deltas samples run_window setting_latest
-- grain: one row
-- signals: level 1
CREATE VIEW speculation AS
WITH counted AS (
  SELECT
    max(intervals) AS n,
    sum(delta) FILTER (signal = 'spec_accepted_tokens') / nullif(sum(delta) FILTER (signal = 'spec_draft_tokens'), 0) AS accepted
  FROM counter_deltas WHERE signal IN ('spec_accepted_tokens', 'spec_draft_tokens')
), stated AS (
  SELECT
    count(*) AS n,
    sum(value) FILTER (signal = 'log_spec_accepted_tokens') / nullif(sum(value) FILTER (signal = 'log_spec_draft_tokens'), 0) AS logged,
    avg(value) FILTER (signal = 'log_spec_accepted_ratio') AS mean,
    -- a step that drafted nothing has length 1 as well: it tells nothing
    coalesce(
      avg(value) FILTER (signal = 'spec_accepted_length_mean_count' AND engine = 'sglang' AND value > 1),
      avg(value) FILTER (signal = 'log_spec_length_count' AND value > 1)
    ) AS length,
    coalesce(
      avg(value) FILTER (signal = 'spec_accepted_ratio' AND engine = 'sglang' AND value > 0),
      avg(value) FILTER (signal = 'log_spec_rate_ratio' AND value > 0)
    ) AS rate
  FROM samples, run_window w
  WHERE signal IN (
    'log_spec_accepted_tokens', 'log_spec_draft_tokens', 'log_spec_accepted_ratio', 'log_spec_length_count', 'log_spec_rate_ratio'
  ) OR (signal IN ('spec_accepted_length_mean_count', 'spec_accepted_ratio') AND t_ns BETWEEN w.start_ns AND w.end_ns)
), asked AS (
  -- one of the tokens that are verified is the target's own
  SELECT coalesce(
    max(try_cast(value AS DOUBLE)) FILTER (key = 'speculative_num_draft_tokens') - 1,
    max(try_cast(value AS DOUBLE)) FILTER (key = 'speculative_num_steps')
  ) AS drafts
  FROM setting_latest
), all_of_them AS (
  SELECT
    greatest(counted.n, stated.n) AS n,
    coalesce(counted.accepted, stated.logged, stated.mean, (stated.length - 1) / nullif(asked.drafts, 0)) AS accepted,
    stated.rate,
    CASE WHEN length > 1 AND length / rate > 1 THEN (length - 1) / (length / rate - 1) END AS rate_of_drafts
  FROM counted, stated, asked
)
SELECT
  n,
  coalesce(accepted, rate) AS speculation_accepted_ratio,
  CASE WHEN accepted IS NULL THEN least(rate, rate_of_drafts) END AS low_speculation_accepted_ratio,
  CASE WHEN accepted IS NULL THEN rate END AS high_speculation_accepted_ratio
FROM all_of_them
WHERE speculation_accepted_ratio BETWEEN 0 AND 1;
COMMENT ON VIEW speculation IS 'How many of the tokens that were guessed ahead the model took.';
COMMENT ON COLUMN speculation.speculation_accepted_ratio IS '[0..1] drafted tokens that were accepted, without the one that the target adds: by the engine''s counters, else its log; of SGLang the accepted length over the tokens drafted, and where their number is not told its rate, which in some releases has the added token in it: the lower bound is without. Steps that drafted nothing are left out';
