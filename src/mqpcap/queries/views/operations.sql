-- Whole messages, a row for each role of their operation, with their exchange.
SELECT m.capture, m.capture_file, m.first_packet, m.connection_id, m.direction, m.stream_offset, m.ts_ns,
       m.protocol, m.op, m.frame_len, m.body_len, m.src_ip, m.src_port, m.dst_ip, m.dst_port, m.group_name, m.client_name,
       m.partition_id, m.message_id, m.correlation_id, m.status, m.error_text, r.role, COALESCE(m.destination, e.destination) AS destination,
       e.client_name AS asked_by, e.state, e.request_direction, e.request_offset, e.reply_direction, e.reply_offset,
       COALESCE(e.status, '') = 'error' AS is_refused
FROM messages m
JOIN roles r ON r.protocol = m.protocol AND r.direction = m.direction AND r.op = m.op
LEFT JOIN paired e ON e.capture = m.capture AND e.connection_id = m.connection_id AND e.direction = m.direction
                  AND e.stream_offset = m.stream_offset
WHERE m.flaw IS NULL
