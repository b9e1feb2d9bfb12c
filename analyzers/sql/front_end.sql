-- requires: server_phases client_latency queue
-- grain: one row
-- signals: level 1
CREATE VIEW front_end AS
WITH step AS (
  SELECT
    s.n, s.server_front_end_mean_s AS fe, s.server_ttft_front_end_mean_s AS ttft_fe, s.server_queue_mean_s AS queue,
    s.server_e2e_mean_s AS e2e,
    -- chunks that merge tokens are no passes: then half of the engine's own mean gap stands in
    CASE WHEN c.chunks_per_token_ratio BETWEEN 0.9 AND 1.1 THEN c.step_residual_s ELSE s.server_itl_mean_s / 2 END
      * CASE WHEN q.running_mean_count > 1 THEN 1 ELSE q.running_mean_count END AS rest
  FROM server_phases s LEFT JOIN client_latency c ON true LEFT JOIN queue q ON true
  WHERE s.server_front_end_mean_s IS NOT NULL
), split AS (
  SELECT *, CASE WHEN ttft_fe < rest THEN ttft_fe ELSE rest END AS seen FROM step
), taken AS (
  SELECT *, coalesce(seen, 0) AS residual FROM split
)
SELECT
  n,
  seen AS step_wait_mean_s,
  queue + residual AS wait_mean_s,
  greatest(fe - residual, 0) AS front_end_work_mean_s,
  CASE WHEN ttft_fe < residual THEN 0 ELSE ttft_fe - residual END AS front_end_ttft_work_mean_s,
  greatest(fe - residual, 0) / nullif(e2e, 0) AS front_end_work_ratio
FROM taken;
COMMENT ON VIEW front_end IS 'The front end''s own work. Engines stamp a request as queued only when the pass in flight has ended; that wait lies in end-to-end minus queue minus inference and is taken out here.';
COMMENT ON COLUMN front_end.step_wait_mean_s IS '[s] waiting for the pass in flight at arrival: its mean remainder times the share of time in which the engine runs; NULL where no step was seen, and then it stays in the front end''s part';
COMMENT ON COLUMN front_end.wait_mean_s IS '[s] queue plus that wait';
COMMENT ON COLUMN front_end.front_end_work_mean_s IS '[s] tokenization, IPC, detokenization and streaming';
COMMENT ON COLUMN front_end.front_end_ttft_work_mean_s IS '[s] the part of it before the first token';
COMMENT ON COLUMN front_end.front_end_work_ratio IS '[0..1] front-end work over the server''s end-to-end';
