-- Which requests got no answer, and which answers have no request?
--
-- A row per exchange whose state is unanswered, lost (the answer lies in a gap) or orphan (its request was not
-- captured), by time. The key of the message is capture, connection_id, request_direction and request_offset or
-- reply_offset. Exchanges whose state is likely or unknown are counted by the question latency.
SELECT protocol, state, op, destination, client_name, capture, connection_id, request_direction, request_offset,
       reply_offset, COALESCE(request_ts_ns, reply_ts_ns) AS ts_ns, status, error_code
FROM exchanges
WHERE state IN ('unanswered', 'lost', 'orphan')
ORDER BY COALESCE(request_ts_ns, reply_ts_ns) NULLS LAST, capture NULLS LAST, connection_id NULLS LAST,
         request_offset NULLS LAST, reply_offset NULLS LAST
