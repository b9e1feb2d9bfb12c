-- requires: log_timings
-- grain: one row
-- signals: level 1
CREATE VIEW token_timings AS
SELECT
  requests_count + contexts_count AS n,
  context_sample_s / nullif(coalesce(context_sample_count, context_output_tokens + contexts_count), 0) AS step_host_s,
  context_decode_s / nullif(context_output_tokens, 0) AS step_device_s,
  step_host_s + step_device_s AS step_s,
  coalesce(prompt_tokens / nullif(prompt_s, 0), context_prompt_tokens / nullif(context_prompt_s, 0)) AS prefill_tokens_per_s,
  prompt_mean_tokens AS log_input_mean_tokens,
  output_mean_tokens AS log_output_mean_tokens
FROM log_timings;
COMMENT ON VIEW token_timings IS 'One decode step of llama.cpp and one request, by the timings of its log. Its programs sample between two steps, so that host and device take turns.';
COMMENT ON COLUMN token_timings.step_host_s IS '[s] the host''s time a generated token for choosing it, grammar and penalties in it; NULL for a server, which does not tell it';
COMMENT ON COLUMN token_timings.step_device_s IS '[s] computation a generated token, on whatever device; NULL for a server, whose time a token is that of the clock';
COMMENT ON COLUMN token_timings.step_s IS '[s] both together: one token of one context';
COMMENT ON COLUMN token_timings.prefill_tokens_per_s IS '[1/s] prompt tokens over the time of computing them, one request or context at a time: a rate while prompts run, not over the run';
COMMENT ON COLUMN token_timings.log_input_mean_tokens IS '[tokens] prompt of a request that was computed, without what the slot''s cache had';
COMMENT ON COLUMN token_timings.log_output_mean_tokens IS '[tokens] answer of a request';
