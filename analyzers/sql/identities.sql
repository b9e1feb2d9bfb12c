-- requires: load server_phases kv_cache run_window measured_requests samples histogram_totals request_batch step_fit
-- grain: one row
-- signals: level 1
CREATE VIEW identities AS
WITH halves AS (
  SELECT
    avg(client_e2e_s) FILTER (quarter = 1) AS first_quarter,
    avg(client_e2e_s) FILTER (quarter > 1) AS rest,
    count(*) AS n
  FROM (SELECT client_e2e_s, ntile(4) OVER (ORDER BY arrival_ns, request_id) AS quarter FROM measured_requests WHERE status = 'ok')
), steps AS (
  -- against the fitted line: a burst makes the batch, and so the step, larger; warm-up makes it longer than that
  SELECT
    avg(slowness) FILTER (quarter = 1) AS first_quarter,
    avg(slowness) FILTER (quarter > 1) AS rest
  FROM (
    SELECT
      b.gap_p50_s / nullif(f.step_base_s + f.step_per_sequence_s * b.batch_mean_count, 0) AS slowness,
      ntile(4) OVER (ORDER BY m.arrival_ns, m.request_id) AS quarter
    FROM request_batch b JOIN measured_requests m ON m.request_id = b.request_id, step_fit f
    WHERE f.step_base_s > 0 AND f.step_per_sequence_s > 0
  )
), firsts AS (
  SELECT first(client_ttft_s / usual ORDER BY arrival_ns, request_id) FILTER (client_ttft_s / usual IS NOT NULL) AS ratio
  FROM (
    SELECT arrival_ns, request_id, client_ttft_s, nullif(median(client_ttft_s) OVER (PARTITION BY workload), 0) AS usual
    FROM measured_requests WHERE status = 'ok'
  )
), ends AS (
  SELECT count_if(m.end_ns <= w.send_end_ns)::DOUBLE AS done, count(*)::DOUBLE AS sent
  FROM measured_requests m, run_window w
), gauges AS (
  SELECT sum(value) / nullif(count(DISTINCT t_ns), 0) AS inside, count(DISTINCT t_ns) AS scrapes
  FROM samples, run_window w
  WHERE signal IN ('engine_running_count', 'engine_waiting_count') AND t_ns BETWEEN w.start_ns AND w.end_ns
), sums AS (
  SELECT sum(total) FILTER (signal IN ('queue_s', 'inference_s')) / nullif(any_value(w.duration_s), 0) AS inside
  FROM histogram_totals, run_window w
)
SELECT
  halves.n AS n,
  halves.first_quarter / nullif(halves.rest, 0) AS warmup_drift_ratio,
  steps.first_quarter / nullif(steps.rest, 0) AS warmup_step_ratio,
  firsts.ratio AS first_request_ratio,
  ends.done / nullif(ends.sent, 0) AS completed_while_sending_ratio,
  (s.server_queue_mean_s + s.server_prefill_mean_s + s.server_decode_mean_s + s.server_front_end_mean_s)
    / nullif(s.server_e2e_mean_s, 0) - 1 AS phases_error_ratio,
  k.generation_tokens_per_s / nullif(load.output_tokens_per_s, 0) - 1 AS tokens_error_ratio,
  CASE WHEN gauges.scrapes >= 10 THEN gauges.inside / nullif(sums.inside, 0) - 1 END AS little_error_ratio
FROM halves, steps, firsts, ends, gauges, sums LEFT JOIN server_phases s ON true LEFT JOIN load ON true LEFT JOIN kv_cache k ON true
WHERE coalesce(warmup_drift_ratio, completed_while_sending_ratio, phases_error_ratio, tokens_error_ratio, little_error_ratio)
  IS NOT NULL;
COMMENT ON VIEW identities IS 'What has to add up: the phases to the end-to-end time, the engine''s tokens to the client''s.';
COMMENT ON COLUMN identities.warmup_drift_ratio IS '[ratio] mean latency of the first quarter of the requests over that of the rest; well above 1: still warming up, well below: the queue grows';
COMMENT ON COLUMN identities.completed_while_sending_ratio IS '[0..1] requests that ended before the last one was sent';
COMMENT ON COLUMN identities.phases_error_ratio IS '[ratio] queue + prefill + decode + front end over the server''s end-to-end, minus 1';
COMMENT ON COLUMN identities.tokens_error_ratio IS '[ratio] tokens counted by the engine over those counted by the client, minus 1: other clients, or lost scrapes';
COMMENT ON COLUMN identities.little_error_ratio IS '[ratio] requests inside the engine by its gauges over those by Little''s law on its phase sums, minus 1: a starved scraper, lost scrapes, or a run that was not stationary; NULL below 10 scrapes';
COMMENT ON COLUMN identities.warmup_step_ratio IS '[ratio] decode steps of the first quarter of the requests over those of the rest, each against the step that the fit expects at its batch: an engine that warms up is slow for its batch, one under a burst is not; NULL where the step does not grow with the batch in this run';
COMMENT ON COLUMN identities.first_request_ratio IS '[ratio] TTFT of the first request over the median of its kind: compilation falls on it';
