-- Every message of an exchange, request or reply, with that exchange.
SELECT capture, connection_id, request_direction AS direction, request_offset AS stream_offset, request_direction,
       request_offset, CASE WHEN request_direction = 'c2s' THEN 's2c' ELSE 'c2s' END AS reply_direction, reply_offset,
       state, status, op, destination, client_name
FROM exchanges WHERE request_offset IS NOT NULL
UNION ALL
SELECT capture, connection_id, CASE WHEN request_direction = 'c2s' THEN 's2c' ELSE 'c2s' END AS direction,
       reply_offset AS stream_offset, request_direction, request_offset,
       CASE WHEN request_direction = 'c2s' THEN 's2c' ELSE 'c2s' END AS reply_direction, reply_offset,
       state, status, op, destination, client_name
FROM exchanges WHERE reply_offset IS NOT NULL
