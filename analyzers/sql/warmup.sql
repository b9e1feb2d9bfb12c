-- requires: measured_requests
-- grain: one row
-- signals: level 1
CREATE VIEW warmup AS
WITH batches AS (
  SELECT batch, avg(client_e2e_s) AS y, min(arrival_ns) AS start_ns
  FROM (
    SELECT client_e2e_s, arrival_ns, (row_number() OVER (ORDER BY arrival_ns, request_id) - 1) // 5 AS batch
    FROM measured_requests WHERE status = 'ok' AND client_e2e_s IS NOT NULL
  )
  GROUP BY batch
), tails AS (
  SELECT
    batch, start_ns,
    count(*) OVER tail AS n,
    sum(y * y) OVER tail - (sum(y) OVER tail) ** 2 / count(*) OVER tail AS squares,
    count(*) OVER () AS total,
    min(start_ns) OVER () AS first_ns
  FROM batches
  WINDOW tail AS (ORDER BY batch ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
), best AS (
  SELECT arg_min(batch, squares / n ** 2) AS cut, any_value(total) AS total,
    arg_min(start_ns, squares / n ** 2) AS start_ns, any_value(first_ns) AS first_ns
  FROM tails WHERE batch <= total / 2
  HAVING any_value(total) >= 10
)
SELECT
  total * 5 AS n,
  (start_ns - first_ns) / 1e9 AS transient_s,
  cut::DOUBLE / total AS transient_ratio
FROM best;
COMMENT ON VIEW warmup IS 'Where the start-up transient ends, found and not assumed: MSER-5 on end-to-end times (White 1997), the cut that makes the standard error of what remains smallest. NULL below 50 requests. A cut at half of the run means that no steady state was reached.';
COMMENT ON COLUMN warmup.transient_s IS '[s] from the first arrival to the first request that belongs to the steady state';
COMMENT ON COLUMN warmup.transient_ratio IS '[0..1] share of the requests before that; 0.5 is the most that is looked at';
