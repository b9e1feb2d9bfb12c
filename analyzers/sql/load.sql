-- requires: measured_requests run_window events inflight
-- grain: one row
-- signals: level 1
CREATE TABLE load AS
SELECT
  count(*) AS n,
  (SELECT arg_max(text, t_ns) FROM events WHERE kind = 'load_mode') AS load_mode,
  count(*)::DOUBLE AS requests_count,
  CASE WHEN any_value(w.sending_s) > 0 THEN (count(*) - 1) / any_value(w.sending_s) END AS offered_rate_per_s,
  CASE WHEN any_value(w.duration_s) > 0
    THEN count_if(status = 'ok') / any_value(w.duration_s) END AS completed_rate_per_s,
  count_if(status NOT IN ('ok', 'unfinished'))::DOUBLE / nullif(count(*), 0) AS failed_ratio,
  count_if(status = 'unfinished')::DOUBLE / nullif(count(*), 0) AS unfinished_ratio,
  sum(client_e2e_s) / nullif(any_value(w.duration_s), 0) AS inflight_mean_count,
  avg(input_tokens) AS input_mean_tokens,
  quantile_cont(input_tokens, 0.95) AS input_p95_tokens,
  max(input_tokens)::DOUBLE AS input_max_tokens,
  avg(output_tokens) AS output_mean_tokens,
  var_pop(output_tokens) / nullif(avg(output_tokens) ** 2, 0) AS output_spread_ratio,
  CASE WHEN any_value(w.duration_s) > 0
    THEN sum(output_tokens) / any_value(w.duration_s) END AS output_tokens_per_s,
  (SELECT var_pop(gap) / nullif(avg(gap) ** 2, 0)
   FROM (SELECT arrival_ns - lag(arrival_ns) OVER (ORDER BY arrival_ns) AS gap FROM measured_requests)) AS arrival_spread_ratio,
  var_pop(input_tokens) / nullif(avg(input_tokens) ** 2, 0) AS input_spread_ratio,
  (SELECT regr_slope(inflight_count, t_ns / 1e9) FROM inflight HAVING count(*) >= 20) AS inflight_growth_per_s,
  any_value(w.duration_s) AS duration_s,
  any_value(w.sending_s) AS sending_s
FROM measured_requests, run_window w
HAVING count(*) > 0;
COMMENT ON TABLE load IS 'What was offered to the server and what came back.';
COMMENT ON COLUMN load.load_mode IS 'open: arrivals do not wait for answers; closed: a fixed number of callers';
COMMENT ON COLUMN load.requests_count IS '[count] requests sent after the warm-up';
COMMENT ON COLUMN load.offered_rate_per_s IS '[1/s] arrivals, first to last';
COMMENT ON COLUMN load.completed_rate_per_s IS '[1/s] completions, first arrival to last completion';
COMMENT ON COLUMN load.failed_ratio IS '[0..1] requests that failed';
COMMENT ON COLUMN load.inflight_mean_count IS '[count] mean requests in flight, as the client saw them (Little: sum of latencies over the time)';
COMMENT ON COLUMN load.output_spread_ratio IS '[ratio] squared coefficient of variation of output lengths';
COMMENT ON COLUMN load.output_tokens_per_s IS '[1/s] output tokens a second, from usage; chunks are not tokens';
COMMENT ON COLUMN load.arrival_spread_ratio IS '[ratio] squared coefficient of variation of the gaps between arrivals; 1 is Poisson';
COMMENT ON COLUMN load.input_spread_ratio IS '[ratio] squared coefficient of variation of input lengths';
COMMENT ON COLUMN load.unfinished_ratio IS '[0..1] requests still open when the run ended';
COMMENT ON COLUMN load.input_mean_tokens IS '[tokens] mean prompt';
COMMENT ON COLUMN load.input_p95_tokens IS '[tokens] 95th percentile of the prompts';
COMMENT ON COLUMN load.input_max_tokens IS '[tokens] longest prompt';
COMMENT ON COLUMN load.output_mean_tokens IS '[tokens] mean answer';
COMMENT ON COLUMN load.duration_s IS '[s] first arrival to last completion';
COMMENT ON COLUMN load.sending_s IS '[s] first to last arrival';
COMMENT ON COLUMN load.inflight_growth_per_s IS '[1/s] slope of the requests in flight while load was sent: what arrives and is not served in time; NULL below 20 requests';
