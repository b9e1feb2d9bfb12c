-- requires: log_lines
-- grain: one row
-- signals: level 1
CREATE VIEW log_rates AS
SELECT
  count(generated) AS n,
  avg(generated) AS log_generation_tokens_per_s,
  avg(prompted) AS log_prompt_tokens_per_s,
  arg_max(hits, t_ns) FILTER (hits IS NOT NULL) AS log_prefix_hit_ratio
FROM log_lines
-- the line after the last request still shows a rate, one in the middle of nothing shows none
WHERE running > 0 OR generated > 0
HAVING count(generated) > 0;
COMMENT ON VIEW log_rates IS 'Throughput as the engine''s log states it, mean over the statistics lines of one engine while requests ran: coarse, and all that a log alone has.';
COMMENT ON COLUMN log_rates.log_generation_tokens_per_s IS '[1/s] generated';
COMMENT ON COLUMN log_rates.log_prompt_tokens_per_s IS '[1/s] prompt tokens computed';
COMMENT ON COLUMN log_rates.log_prefix_hit_ratio IS '[0..1] prefix cache hits as the last line states them, over the engine''s own window';
