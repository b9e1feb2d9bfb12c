-- requires: histogram_totals log_timings
-- grain: one row
-- signals: level 1
CREATE TABLE server_phases AS
WITH h AS (
  SELECT signal, sum(total) / nullif(sum(observations), 0) AS mean, sum(observations) AS n
  FROM histogram_totals
  WHERE signal IN ('queue_s', 'prefill_s', 'decode_s', 'inference_s', 'ttft_s', 'e2e_s', 'itl_s')
  GROUP BY signal
), counted AS (
  SELECT
    max(n) FILTER (signal = 'e2e_s') AS n,
    max(mean) FILTER (signal = 'queue_s') AS queue,
    max(mean) FILTER (signal = 'prefill_s') AS prefill,
    max(mean) FILTER (signal = 'decode_s') AS decode,
    max(mean) FILTER (signal = 'inference_s') AS inference,
    max(mean) FILTER (signal = 'ttft_s') AS ttft,
    max(mean) FILTER (signal = 'e2e_s') AS e2e,
    max(mean) FILTER (signal = 'itl_s') AS itl
  FROM h
  HAVING count(mean) > 0
), logged AS (
  -- llama.cpp has no histograms, and tells of each request in its log
  SELECT
    requests_count + contexts_count AS n, prompt_mean_s AS prefill, decode_mean_s AS decode,
    prompt_mean_s + decode_mean_s AS inference,
    coalesce(
      decode_s / nullif(output_tokens, 0),
      context_decode_s / nullif(context_output_tokens, 0)
        + coalesce(context_sample_s / nullif(coalesce(context_sample_count, context_output_tokens + contexts_count), 0), 0)
    ) AS itl
  FROM log_timings
), p AS (
  SELECT
    coalesce(c.n, l.n) AS n, queue,
    coalesce(c.prefill, l.prefill) AS prefill, coalesce(c.decode, l.decode) AS decode,
    coalesce(c.inference, l.inference) AS inference, ttft, e2e, coalesce(c.itl, l.itl) AS itl
  FROM counted c FULL JOIN logged l ON true
  WHERE coalesce(c.n, c.queue, c.prefill, c.decode, c.inference, c.ttft, c.e2e, c.itl, l.prefill, l.decode, l.itl) IS NOT NULL
), rest AS (
  SELECT *, e2e - queue - coalesce(inference, prefill + decode) AS front_end, ttft - queue - prefill AS ttft_front_end
  FROM p
)
SELECT
  coalesce(n, 0) AS n,
  queue AS server_queue_mean_s, prefill AS server_prefill_mean_s, decode AS server_decode_mean_s,
  inference AS server_inference_mean_s, ttft AS server_ttft_mean_s, e2e AS server_e2e_mean_s,
  itl AS server_itl_mean_s,
  -- not greatest(): it skips NULL, and what was not measured would read as zero
  CASE WHEN front_end < 0 THEN 0 ELSE front_end END AS server_front_end_mean_s,
  CASE WHEN ttft_front_end < 0 THEN 0 ELSE ttft_front_end END AS server_ttft_front_end_mean_s,
  queue / nullif(e2e, 0) AS wait_share_ratio,
  CASE WHEN front_end < 0 THEN 0 ELSE front_end END / nullif(e2e, 0) AS front_end_share_ratio
FROM rest;
COMMENT ON TABLE server_phases IS 'Mean seconds a request spent in each phase, as the engine counts them (vLLM: queue ends at the first schedule, prefill at the first token); without its histograms as its log tells (llama.cpp).';
COMMENT ON COLUMN server_phases.server_queue_mean_s IS '[s] waiting in the engine before the first schedule; a later preemption does not add to it';
COMMENT ON COLUMN server_phases.server_front_end_mean_s IS '[s] end-to-end minus queue and inference: tokenization, IPC, detokenization, streaming';
COMMENT ON COLUMN server_phases.server_ttft_front_end_mean_s IS '[s] TTFT minus queue and prefill: the front end''s part before the first token';
COMMENT ON COLUMN server_phases.wait_share_ratio IS '[0..1] queue over end-to-end, at the server';
COMMENT ON COLUMN server_phases.front_end_share_ratio IS '[0..1] front end over end-to-end, at the server';
COMMENT ON COLUMN server_phases.server_prefill_mean_s IS '[s] first schedule to first token, mean';
COMMENT ON COLUMN server_phases.server_decode_mean_s IS '[s] first to last token, mean';
COMMENT ON COLUMN server_phases.server_inference_mean_s IS '[s] first schedule to last token, mean';
COMMENT ON COLUMN server_phases.server_ttft_mean_s IS '[s] front-end arrival to first token, mean';
COMMENT ON COLUMN server_phases.server_e2e_mean_s IS '[s] front-end arrival to last token, mean';
COMMENT ON COLUMN server_phases.server_itl_mean_s IS '[s] gap between tokens in the engine, mean; of llama.cpp''s log time over tokens, of a context without a server computation and sampling';
