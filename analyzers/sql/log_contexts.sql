-- requires: log_lines
-- grain: one row
-- signals: level 1
CREATE VIEW log_contexts AS
WITH told AS (
  SELECT *,
    lag(running) OVER series AS before,
    -- a prefill between two decode lines is part of the later one's interval
    lag(generated) OVER series AS generated_before
  FROM log_lines
  WINDOW series AS (PARTITION BY replica ORDER BY t_ns)
), clean AS (
  SELECT
    replica, running, tokens / running AS context, running * coalesce(per_step, 1) / generated AS step,
    row_number() OVER (PARTITION BY replica, running ORDER BY tokens) AS place,
    count(*) OVER (PARTITION BY replica, running) AS lines
  FROM told
  WHERE tokens > 0 AND generated > 0 AND running >= 1 AND before = running AND generated_before > 0
), ends AS (
  SELECT
    replica, running, any_value(lines) AS n,
    avg(context) FILTER (place <= ceil(0.1 * lines)) AS short_tokens,
    avg(context) FILTER (place > lines - ceil(0.1 * lines)) AS long_tokens,
    median(step) FILTER (place <= ceil(0.1 * lines)) AS short_s,
    median(step) FILTER (place > lines - ceil(0.1 * lines)) AS long_s
  FROM clean
  GROUP BY replica, running
)
SELECT
  n,
  short_tokens AS context_short_tokens,
  long_tokens AS context_long_tokens,
  short_s AS step_short_s,
  long_s AS step_long_s
FROM ends
WHERE n >= 4 AND long_tokens >= 1.5 * short_tokens + 500
ORDER BY n DESC, long_tokens / short_tokens DESC, replica, running
LIMIT 1;
COMMENT ON VIEW log_contexts IS 'Decode steps at short and at long contexts, by SGLang''s decode lines of one engine with the same number of requests running at both ends of the interval and no prefill in it: the tenth of the lines with the shortest contexts, and that with the longest. The number of requests with the most such lines counts.';
COMMENT ON COLUMN log_contexts.context_short_tokens IS '[tokens] in the cache a running request, mean over the tenth of the lines with the fewest; a shared prefix counts once';
COMMENT ON COLUMN log_contexts.context_long_tokens IS '[tokens] likewise over the tenth with the most; at least 1.5 times the short context and 500 more';
COMMENT ON COLUMN log_contexts.step_short_s IS '[s] one decode step at the short contexts, median: running requests over the generation rate, times the tokens a step where it speculates';
COMMENT ON COLUMN log_contexts.step_long_s IS '[s] likewise at the long contexts';
