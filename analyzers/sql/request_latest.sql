-- requires: requests
-- grain: one row a request
CREATE VIEW request_latest AS
SELECT *
FROM requests
QUALIFY row_number() OVER (
  PARTITION BY source, request_id
  ORDER BY (status <> 'unfinished') DESC, end_ns DESC NULLS LAST
) = 1;
COMMENT ON VIEW request_latest IS 'Requests in their last known state: a request is logged once when sent and once when it ends; one that never ended stays, as unfinished.';
