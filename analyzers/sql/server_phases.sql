-- requires: histogram_totals
-- grain: one row
-- signals: level 1
CREATE TABLE server_phases AS
WITH h AS (
  SELECT signal, sum(total) / nullif(sum(observations), 0) AS mean, sum(observations) AS n
  FROM histogram_totals
  WHERE signal IN ('queue_s', 'prefill_s', 'decode_s', 'inference_s', 'ttft_s', 'e2e_s', 'itl_s')
  GROUP BY signal
), p AS (
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
COMMENT ON TABLE server_phases IS 'Mean seconds a request spent in each phase, as the engine counts them (vLLM: queue ends at the first schedule, prefill at the first token).';
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
COMMENT ON COLUMN server_phases.server_itl_mean_s IS '[s] gap between tokens in the engine, mean';
