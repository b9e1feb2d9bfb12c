-- requires: request_batch
-- grain: one row
CREATE VIEW step_fit AS
SELECT
  count(*) AS n,
  min(batch_mean_count) AS batch_min_count, max(batch_mean_count) AS batch_max_count,
  avg(batch_mean_count) AS batch_mean_count,
  nullif(regr_intercept(gap_p50_s, batch_mean_count), 'nan') AS step_base_s,
  nullif(regr_slope(gap_p50_s, batch_mean_count), 'nan') AS step_per_sequence_s,
  CASE WHEN count(*) > 2 AND stddev_samp(batch_mean_count) > 0 THEN
    sqrt(greatest(0, 1 - regr_r2(gap_p50_s, batch_mean_count)) / (count(*) - 2))
      * stddev_samp(gap_p50_s) / stddev_samp(batch_mean_count) END AS step_per_sequence_error_s,
  regr_r2(gap_p50_s, batch_mean_count) AS fit_r2_ratio,
  avg(gap_p50_s) AS gap_mean_s
FROM request_batch
HAVING count(*) > 0;
COMMENT ON VIEW step_fit IS 'Decode step time against batch, least squares over requests: T = base + per_sequence × batch. Trust it only where the batch varied (batch_max over batch_min).';
COMMENT ON COLUMN step_fit.step_base_s IS '[s] T extrapolated to an empty batch';
COMMENT ON COLUMN step_fit.step_per_sequence_s IS '[s] added by one more sequence';
COMMENT ON COLUMN step_fit.step_per_sequence_error_s IS '[s] its standard error';
COMMENT ON COLUMN step_fit.batch_min_count IS '[count] smallest batch seen';
COMMENT ON COLUMN step_fit.batch_max_count IS '[count] largest batch seen';
COMMENT ON COLUMN step_fit.batch_mean_count IS '[count] mean batch';
COMMENT ON COLUMN step_fit.fit_r2_ratio IS '[0..1] variance explained';
COMMENT ON COLUMN step_fit.gap_mean_s IS '[s] mean of the median gaps';
