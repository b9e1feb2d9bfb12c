-- requires: run_window engine_state samples
-- grain: one row
-- signals: level 3
CREATE VIEW gpu_counters AS
WITH serving AS (
  SELECT t_ns, sum(running) > 0 AS busy, lead(t_ns) OVER (ORDER BY t_ns) AS next_ns
  FROM engine_state WHERE running IS NOT NULL GROUP BY t_ns
), read AS (
  SELECT s.t_ns, s.signal, s.value, s.node, s.gpu
  FROM samples s, run_window w
  WHERE s.gpu <> '' AND s.kind = 'gauge' AND s.t_ns BETWEEN w.start_ns AND w.send_end_ns
), at_work AS (
  -- without the gauge of running requests nobody knows when it idled: then the whole window counts
  SELECT r.signal, r.value, r.t_ns, r.node, r.gpu
  FROM read r LEFT JOIN serving e ON r.t_ns >= e.t_ns AND (r.t_ns < e.next_ns OR e.next_ns IS NULL)
  WHERE coalesce(e.busy, (SELECT count(*) FROM serving) = 0)
), means AS (
  SELECT
    count(DISTINCT t_ns) AS n,
    avg(value) FILTER (signal = 'gpu_graphics_active_ratio') AS graphics,
    avg(value) FILTER (signal = 'gpu_busy_ratio') AS busy,
    avg(value) FILTER (signal = 'gpu_sm_active_ratio') AS sm,
    avg(value) FILTER (signal = 'gpu_occupancy_ratio') AS occupancy,
    avg(value) FILTER (signal = 'gpu_tensor_active_ratio') AS tensor,
    avg(value) FILTER (signal = 'gpu_dram_active_ratio') AS dram,
    avg(value) FILTER (signal = 'gpu_nvlink_tx_per_s') AS nvlink,
    avg(value) FILTER (signal = 'gpu_pcie_tx_per_s') AS pcie,
    avg(value) FILTER (signal = 'gpu_power_w') AS power,
    avg(value) FILTER (signal = 'gpu_sm_clock_mhz') AS clock
  FROM at_work
), held AS (
  -- one reason is enough, and several at once are no more
  SELECT avg(held) AS throttled FROM (
    SELECT max(value) AS held FROM at_work WHERE signal = 'gpu_throttled_ratio' GROUP BY t_ns, node, gpu
  )
)
SELECT
  n,
  coalesce(graphics, busy) AS gpu_busy_ratio,
  sm AS gpu_sm_ratio,
  occupancy AS gpu_occupancy_ratio,
  tensor AS gpu_tensor_ratio,
  dram AS gpu_dram_ratio,
  greatest(nvlink, pcie) AS gpu_link_per_s,
  power AS gpu_power_w,
  clock AS gpu_sm_clock_mhz,
  throttled AS gpu_throttled_ratio
FROM means, held
WHERE n > 0;
COMMENT ON VIEW gpu_counters IS 'What the GPUs did while requests ran, mean over samples and GPUs: from dcgm-exporter, or from NVML, which knows busy, power and clock alone.';
COMMENT ON COLUMN gpu_counters.gpu_busy_ratio IS '[0..1] time in which a kernel was resident, from the profiling counter where there is one: not a measure of load';
COMMENT ON COLUMN gpu_counters.gpu_sm_ratio IS '[0..1] cycles in which an SM had a warp, mean over SMs; NULL without profiling counters';
COMMENT ON COLUMN gpu_counters.gpu_occupancy_ratio IS '[0..1] resident warps over the most that would fit; NULL without profiling counters';
COMMENT ON COLUMN gpu_counters.gpu_tensor_ratio IS '[0..1] cycles in which a tensor pipe was busy; NULL without profiling counters';
COMMENT ON COLUMN gpu_counters.gpu_dram_ratio IS '[0..1] cycles in which the memory interface moved data, 0.8 to 0.9 is its practical ceiling; NULL without profiling counters';
COMMENT ON COLUMN gpu_counters.gpu_link_per_s IS '[1/s] bytes a second sent over NVLink or PCIe, the busier of the two, a GPU';
COMMENT ON COLUMN gpu_counters.gpu_power_w IS '[w] power draw of one GPU';
COMMENT ON COLUMN gpu_counters.gpu_sm_clock_mhz IS '[mhz] clock of the SMs; below the top while something holds it down';
COMMENT ON COLUMN gpu_counters.gpu_throttled_ratio IS '[0..1] time in which power, heat or a lock held the clocks down, for whatever reason; NULL where the driver does not tell';
