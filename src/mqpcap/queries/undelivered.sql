-- Which published messages were not delivered, as far as the capture shows?
--
-- A row per publish that was not refused and has no delivery, by time, of protocols whose deliveries name their publish:
-- client, server, operation, state of its exchange, body_len, its packet in capture_file, and its key.
-- open_deliveries: deliveries of that destination in the capture that have no publish, for they fit several, or one that
-- was not captured. One of them may be the message; where there is none, no delivery of it was captured.
WITH given AS (
  SELECT DISTINCT capture, publish_connection_id, publish_offset, 1 AS is_delivered FROM deliveries
),
found AS (
  SELECT capture, deliver_connection_id, deliver_offset, COUNT(*) AS found_count FROM deliveries
  GROUP BY capture, deliver_connection_id, deliver_offset
),
unmatched AS (
  SELECT o.capture, o.protocol, o.destination, SUM(o.message_count - COALESCE(f.found_count, 0)) AS open_deliveries
  FROM payloads o
  LEFT JOIN found f ON f.capture = o.capture AND f.deliver_connection_id = o.connection_id
                   AND f.deliver_offset = o.stream_offset
  WHERE o.direction = 's2c' AND o.role IN ('deliver', 'reply')
  GROUP BY o.capture, o.protocol, o.destination
)
SELECT o.protocol, o.destination, o.src_ip AS client_ip, o.src_port AS client_port, o.dst_ip AS server_ip,
       o.dst_port AS server_port, o.op, o.state, o.body_len, o.ts_ns, o.capture_file, o.first_packet, o.capture,
       o.connection_id, o.stream_offset, COALESCE(u.open_deliveries, 0) AS open_deliveries
FROM operations o
JOIN roles t ON t.protocol = o.protocol AND t.role = 'delivering'
LEFT JOIN given g ON g.capture = o.capture AND g.publish_connection_id = o.connection_id
                 AND g.publish_offset = o.stream_offset
LEFT JOIN unmatched u ON u.capture = o.capture AND u.protocol = o.protocol AND u.destination = o.destination
WHERE o.role = 'publish' AND o.direction = 'c2s' AND NOT o.is_refused AND g.is_delivered IS NULL
ORDER BY o.ts_ns NULLS LAST, o.capture NULLS LAST, o.connection_id NULLS LAST, o.stream_offset NULLS LAST
