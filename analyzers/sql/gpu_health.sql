-- requires: run_window samples setting_latest engine_limits
-- grain: one row
-- signals: level 1
CREATE VIEW gpu_health AS
WITH every AS (
  SELECT t_ns, node, gpu, signal, reason, value FROM samples WHERE gpu <> ''
), inside AS (
  SELECT every.* FROM every, run_window w WHERE t_ns BETWEEN w.start_ns AND w.send_end_ns
), seen AS (
  -- a dump that was made at another time still tells the state of the machine
  SELECT * FROM inside UNION ALL SELECT * FROM every WHERE (SELECT count(*) FROM inside) = 0
), beside AS (
  -- what is asked beside the use at one instant bears its own time, a little later
  SELECT
    node, gpu, signal, value,
    last_value(CASE WHEN signal = 'gpu_busy_ratio' THEN value END IGNORE NULLS) OVER (
      PARTITION BY node, gpu ORDER BY t_ns, signal <> 'gpu_busy_ratio' ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS busy
  FROM seen
), at_work AS (
  SELECT node, gpu, signal, value FROM beside WHERE busy >= 0.5
), levels AS (
  SELECT
    node, gpu,
    avg(value) FILTER (signal = 'gpu_sm_clock_mhz') AS clock,
    avg(value) FILTER (signal = 'gpu_mem_clock_mhz') AS mem_clock,
    avg(value) FILTER (signal = 'gpu_power_w') AS power,
    avg(value) FILTER (signal = 'gpu_pcie_rx_per_s') AS pcie_rx
  FROM at_work GROUP BY node, gpu
), ends AS (
  SELECT
    node, gpu,
    max(value) FILTER (signal = 'gpu_sm_clock_max_mhz') AS clock_max,
    max(value) FILTER (signal = 'gpu_mem_clock_max_mhz') AS mem_clock_max,
    min(value) FILTER (signal = 'gpu_power_limit_w') AS power_limit,
    max(value) FILTER (signal = 'gpu_power_limit_default_w') AS power_default,
    max(value) FILTER (signal = 'gpu_mem_total_bytes') AS mem_total,
    min(value) FILTER (signal = 'gpu_pcie_width_count') AS width,
    max(value) FILTER (signal = 'gpu_pcie_width_max_count') AS width_max,
    max(value) FILTER (signal = 'gpu_ecc_errors_count' AND reason = 'uncorrected') AS uncorrected,
    max(value) FILTER (signal = 'gpu_ecc_errors_count' AND reason = 'corrected') AS corrected
  FROM every GROUP BY node, gpu
), now AS (
  SELECT
    node, gpu,
    max(value) FILTER (signal = 'gpu_temperature_celsius') AS temperature,
    max(value) FILTER (signal = 'gpu_mem_used_bytes') AS mem_used
  FROM seen GROUP BY node, gpu
), held AS (
  -- several reasons at one instant are no more than one
  SELECT
    node, gpu, t_ns,
    max(value) FILTER (reason IN ('hw_slowdown', 'hw_thermal_slowdown', 'sw_thermal_slowdown', 'hw_power_brake_slowdown', 'thermal_violation')) AS slowdown,
    max(value) FILTER (reason IN ('hw_thermal_slowdown', 'sw_thermal_slowdown', 'thermal_violation')) AS thermal,
    max(value) FILTER (reason IN ('sw_power_cap', 'power_violation')) AS capped
  FROM seen WHERE signal = 'gpu_throttled_ratio' GROUP BY node, gpu, t_ns
), shares AS (
  SELECT node, gpu, avg(slowdown) AS slowdown, avg(thermal) AS thermal, avg(capped) AS capped
  FROM held GROUP BY node, gpu
), pairs AS (
  SELECT
    value AS link,
    try_cast(regexp_extract(key, '^gpu_link_(\d+)_(\d+)$', 1) AS INTEGER) AS a,
    try_cast(regexp_extract(key, '^gpu_link_(\d+)_(\d+)$', 2) AS INTEGER) AS b
  FROM setting_latest
), links AS (
  -- the first GPUs serve where nobody says which do
  SELECT
    CASE WHEN link LIKE 'NV%' OR link = 'C2C' THEN 'NV' WHEN link IN ('PIX', 'PSB') THEN 'PIX' WHEN link = 'SOC' THEN 'SYS'
      ELSE link END AS link
  FROM pairs
  WHERE a IS NOT NULL AND b IS NOT NULL
    AND greatest(a, b) < coalesce((SELECT nullif(tensor_parallel_count, 1) FROM engine_limits), 1000000)
), path AS (
  SELECT max_by(link, CASE link WHEN 'NV' THEN 0 WHEN 'PIX' THEN 1 WHEN 'PXB' THEN 2 WHEN 'PHB' THEN 3 WHEN 'NODE' THEN 4 ELSE 5 END) AS link
  FROM links
), worst AS (
  SELECT
    count(*) AS n,
    max(slowdown) AS slowdown, max(thermal) AS thermal, max(capped) AS capped,
    min(clock / nullif(clock_max, 0)) AS clock, min(mem_clock / nullif(mem_clock_max, 0)) AS mem_clock,
    max(power / nullif(power_limit, 0)) AS power, min(power_limit / nullif(power_default, 0)) AS limits,
    min(width / nullif(width_max, 0)) AS width, sum(uncorrected) AS uncorrected, sum(corrected) AS corrected,
    max(temperature) AS temperature, max(mem_used / nullif(mem_total, 0)) AS mem_used, max(pcie_rx) AS pcie_rx
  FROM ends LEFT JOIN levels USING (node, gpu) LEFT JOIN now USING (node, gpu) LEFT JOIN shares USING (node, gpu)
)
SELECT
  greatest(n, 1) AS n,
  slowdown AS gpu_slowdown_ratio,
  thermal AS gpu_thermal_ratio,
  capped AS gpu_power_capped_ratio,
  clock AS gpu_clock_ratio,
  mem_clock AS gpu_mem_clock_ratio,
  power AS gpu_power_of_limit_ratio,
  limits AS gpu_power_limit_of_default_ratio,
  width AS gpu_pcie_width_ratio,
  uncorrected AS gpu_ecc_errors_count,
  corrected AS gpu_ecc_corrected_count,
  temperature AS gpu_temperature_celsius,
  mem_used AS gpu_mem_used_ratio,
  pcie_rx AS gpu_pcie_rx_per_s,
  link AS gpu_link_path
FROM worst, path
WHERE n > 0 OR link IS NOT NULL;
COMMENT ON VIEW gpu_health IS 'Are the GPUs able to give what they are sold for? Of each figure the GPU that is worst off counts; inside the window that is judged, or of all that is known where nothing falls into it.';
COMMENT ON COLUMN gpu_health.gpu_slowdown_ratio IS '[0..1] instants at which heat, a power brake or another hardware slowdown held the clocks down; a software power cap and a lock are none of these; NULL where the driver does not tell';
COMMENT ON COLUMN gpu_health.gpu_thermal_ratio IS '[0..1] instants at which heat held the clocks down';
COMMENT ON COLUMN gpu_health.gpu_power_capped_ratio IS '[0..1] instants at which the power limit was reached; that costs clock, and a decode that reads memory may not feel it';
COMMENT ON COLUMN gpu_health.gpu_clock_ratio IS '[ratio] mean SM clock while the GPU was busy over its highest; NULL where the use or the highest is not known';
COMMENT ON COLUMN gpu_health.gpu_mem_clock_ratio IS '[ratio] mean memory clock while the GPU was busy over its highest';
COMMENT ON COLUMN gpu_health.gpu_power_of_limit_ratio IS '[ratio] mean power while the GPU was busy over its limit';
COMMENT ON COLUMN gpu_health.gpu_power_limit_of_default_ratio IS '[ratio] power limit over the default one; below 1 somebody set it';
COMMENT ON COLUMN gpu_health.gpu_pcie_width_ratio IS '[ratio] lanes of the PCIe link over those that the GPU has';
COMMENT ON COLUMN gpu_health.gpu_ecc_errors_count IS '[count] memory errors that could not be corrected, since the driver was loaded, of all GPUs';
COMMENT ON COLUMN gpu_health.gpu_ecc_corrected_count IS '[count] memory errors that were corrected, since the driver was loaded, of all GPUs';
COMMENT ON COLUMN gpu_health.gpu_temperature_celsius IS '[celsius] highest temperature of a chip';
COMMENT ON COLUMN gpu_health.gpu_mem_used_ratio IS '[0..1] highest use of device memory';
COMMENT ON COLUMN gpu_health.gpu_pcie_rx_per_s IS '[1/s] mean bytes a second that a busy GPU received over PCIe';
COMMENT ON COLUMN gpu_health.gpu_link_path IS 'the worst link between two of the GPUs that share a layer (of all where that is not known): NV, PIX, PXB, PHB, NODE or SYS, as nvidia-smi topo -m tells';
