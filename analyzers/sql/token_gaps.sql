-- requires: measured_requests
-- grain: one row a gap between two content chunks
CREATE VIEW token_gaps AS
SELECT request_id, workload, unnest(chunk_gap_s) AS gap_s
FROM measured_requests
WHERE status = 'ok';
COMMENT ON VIEW token_gaps IS 'Every gap between two content chunks that the client saw; a chunk is one token unless the engine or a proxy merges them.';
COMMENT ON COLUMN token_gaps.gap_s IS '[s] gap';
