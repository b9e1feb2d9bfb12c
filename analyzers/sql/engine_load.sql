-- requires: run_window counter_deltas histogram_totals samples
-- grain: one row
-- signals: level 1
CREATE TABLE engine_load AS
WITH states AS (
  SELECT
    replica, t_ns,
    sum(value) FILTER (signal = 'engine_running_count') AS running,
    sum(value) FILTER (signal = 'engine_waiting_count') AS waiting
  FROM samples, run_window w
  WHERE signal IN ('engine_running_count', 'engine_waiting_count') AND t_ns BETWEEN w.start_ns AND w.end_ns
    AND coalesce(labels NOT LIKE '%"from":"log"%', true)
  GROUP BY replica, t_ns
), replicas AS (
  SELECT
    replica, avg(running) AS running, avg(waiting) AS waiting, max(running + waiting) AS busiest,
    arg_max(running + waiting, t_ns) - arg_min(running + waiting, t_ns) AS growth
  FROM states GROUP BY replica
), served AS (
  SELECT DISTINCT replica FROM counter_deltas
  WHERE signal IN ('requests_finished_count', 'generation_tokens') AND delta > 0
), fleet AS (
  -- an idle replica is no part of what serves: it would make the others look idle
  SELECT
    count(*) AS replicas, sum(growth) AS growth, avg(running) AS running, avg(waiting) AS waiting,
    max(running + coalesce(waiting, 0)) / nullif(avg(running + coalesce(waiting, 0)), 0) AS skew
  FROM replicas WHERE busiest > 0 OR replica IN (SELECT replica FROM served)
), inside AS (
  -- the middle of the run: arrivals at random vary as much as their mean, callers who wait for answers do not
  SELECT
    avg(running + coalesce(waiting, 0)) AS mean,
    CASE WHEN count(*) >= 10 THEN var_pop(running + coalesce(waiting, 0)) END AS variance
  FROM states, run_window w
  WHERE t_ns BETWEEN w.start_ns + 0.1 * (w.end_ns - w.start_ns) AND w.start_ns + 0.9 * (w.end_ns - w.start_ns)
    AND running + coalesce(waiting, 0) > 0
), told AS (
  SELECT t_ns, sum(value) AS finished FROM samples, run_window w
  WHERE signal = 'requests_finished_count' AND t_ns BETWEEN w.start_ns AND w.end_ns
  GROUP BY t_ns
), curve AS (
  SELECT s.t_ns, any_value(f.finished) + sum(s.running + coalesce(s.waiting, 0)) AS arrived
  FROM states s JOIN told f USING (t_ns) GROUP BY s.t_ns
), arrivals AS (
  -- what comes after the last arrival is a drain: it is no part of the time in which load was offered
  SELECT min(c.t_ns) AS end_ns, any_value(e.total) AS total
  FROM curve c, (SELECT max(arrived) AS most, max(arrived) - min(arrived) AS total FROM curve) e
  WHERE c.arrived >= e.most - 0.005 * e.total
), counted AS (
  SELECT
    sum(delta) FILTER (signal = 'requests_finished_count') AS finished,
    sum(delta) FILTER (signal = 'prompt_tokens') AS prompt_tokens,
    sum(delta) FILTER (signal = 'generation_tokens') AS generation_tokens
  FROM counter_deltas
), observed AS (
  SELECT
    sum(observations) FILTER (signal = 'e2e_s') AS finished,
    sum(total) FILTER (signal = 'request_prompt_tokens')
      / nullif(sum(observations) FILTER (signal = 'request_prompt_tokens'), 0) AS prompt_mean,
    sum(total) FILTER (signal = 'request_generation_tokens')
      / nullif(sum(observations) FILTER (signal = 'request_generation_tokens'), 0) AS answer_mean,
    sum(total) FILTER (signal = 'inference_s') AS running_s,
    sum(total) FILTER (signal = 'queue_s') AS waiting_s
  FROM histogram_totals
), f AS (
  SELECT coalesce(counted.finished, observed.finished) AS finished FROM counted, observed
)
SELECT
  f.finished AS n,
  f.finished AS engine_finished_count,
  fleet.replicas::DOUBLE AS engine_replicas_count,
  coalesce(
    CASE WHEN fleet.replicas = 1 THEN arrivals.total / nullif((arrivals.end_ns - w.start_ns) / 1e9, 0) END,
    (f.finished + fleet.growth) / nullif(w.duration_s, 0)
  ) AS engine_offered_rate_per_s,
  CASE WHEN fleet.replicas = 1 THEN (arrivals.end_ns - w.start_ns) / 1e9 END AS engine_sending_s,
  f.finished / nullif(w.duration_s, 0) AS engine_completed_rate_per_s,
  coalesce(observed.prompt_mean, counted.prompt_tokens / nullif(f.finished, 0)) AS engine_input_mean_tokens,
  coalesce(observed.answer_mean, counted.generation_tokens / nullif(f.finished, 0)) AS engine_output_mean_tokens,
  coalesce(observed.running_s / nullif(w.duration_s * fleet.replicas, 0), fleet.running) AS engine_running_mean_count,
  coalesce(observed.waiting_s / nullif(w.duration_s * fleet.replicas, 0), fleet.waiting) AS engine_waiting_mean_count,
  CASE WHEN fleet.replicas > 1 THEN fleet.skew END AS replica_load_ratio,
  inside.mean AS engine_inflight_mean_count,
  inside.variance / nullif(inside.mean, 0) AS engine_inflight_dispersion_ratio,
  w.duration_s AS engine_duration_s,
  (SELECT (max(t_ns) - min(t_ns)) / 1e9 FROM samples WHERE engine <> '') AS engine_observed_s
FROM f CROSS JOIN fleet CROSS JOIN counted CROSS JOIN observed CROSS JOIN inside CROSS JOIN run_window w
  LEFT JOIN arrivals ON arrivals.total > 0
WHERE f.finished IS NOT NULL AND fleet.replicas > 0;
COMMENT ON TABLE engine_load IS 'What was offered to the engines and came back, from their own metrics alone: for a run without a load generator. Beside one it is a check, in which the drain after the last arrival counts too.';
COMMENT ON COLUMN engine_load.engine_finished_count IS '[count] requests that finished in the window, for whatever reason';
COMMENT ON COLUMN engine_load.engine_replicas_count IS '[count] engines that served in the window';
COMMENT ON COLUMN engine_load.engine_offered_rate_per_s IS '[1/s] arrivals at all engines by flow balance, finished requests plus the growth of those running and waiting, until the last one came; NULL without these gauges';
COMMENT ON COLUMN engine_load.engine_sending_s IS '[s] until the last request arrived, by one engine''s counters; NULL for several engines';
COMMENT ON COLUMN engine_load.engine_completed_rate_per_s IS '[1/s] finished requests of all engines';
COMMENT ON COLUMN engine_load.engine_input_mean_tokens IS '[tokens] mean prompt of a finished request; from the token counter where the engine has no such histogram';
COMMENT ON COLUMN engine_load.engine_output_mean_tokens IS '[tokens] mean answer of a finished request; from the token counter where the engine has no such histogram';
COMMENT ON COLUMN engine_load.engine_running_mean_count IS '[count] mean requests in the batch of one engine, by Little''s law on its phase sums, else from the gauge';
COMMENT ON COLUMN engine_load.engine_waiting_mean_count IS '[count] mean requests queued in one engine, likewise';
COMMENT ON COLUMN engine_load.replica_load_ratio IS '[ratio] requests inside the busiest engine over those of the mean one, at least 1; NULL where one serves alone';
COMMENT ON COLUMN engine_load.engine_inflight_mean_count IS '[count] mean requests inside one engine at a scrape, in the middle of the run';
COMMENT ON COLUMN engine_load.engine_inflight_dispersion_ratio IS '[ratio] variance over mean of the requests inside at a scrape: about 1 for arrivals at random, near 0 for a fixed number of callers; NULL below ten scrapes';
COMMENT ON COLUMN engine_load.engine_duration_s IS '[s] the span that is judged';
COMMENT ON COLUMN engine_load.engine_observed_s IS '[s] first to last scrape, with what is idle before and after';
