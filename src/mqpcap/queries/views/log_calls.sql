-- Granted calls of brokers that number their messages; read_to is the offset after the messages that a reader was
-- sent or that its filter passed over; null for an empty reply.
SELECT e.protocol, e.capture, e.connection_id, e.server_ip, e.server_port, e.client_ip, e.client_port, e.op, r.role,
       COALESCE(q.destination, a.destination, e.destination) AS destination,
       COALESCE(a.partition_id, q.partition_id) AS partition_id, q.group_name, q.ts_ns AS asked_ns, a.ts_ns,
       e.request_direction, e.request_offset, e.reply_offset AS reply_stream_offset,
       x.log_offset, x.log_position, y.log_offset AS reply_log_offset, y.committed_offset, y.latest_offset, y.lag,
       y.next_offset, COALESCE(y.has_items, FALSE) AS has_items, COALESCE(i.item_count, 0) AS item_count,
       CASE WHEN r.role <> 'poll' THEN NULL
            WHEN y.next_offset IS NULL THEN x.log_offset + 1
            WHEN i.item_count > 0 OR y.next_offset > x.log_offset THEN y.next_offset END AS read_to
FROM exchanges e
JOIN roles n ON n.protocol = e.protocol AND n.role = 'numbered'
JOIN messages q ON q.capture = e.capture AND q.connection_id = e.connection_id AND q.direction = e.request_direction
               AND q.stream_offset = e.request_offset
JOIN messages a ON a.capture = e.capture AND a.connection_id = e.connection_id AND a.stream_offset = e.reply_offset
               AND a.direction <> q.direction
LEFT JOIN details x ON x.capture = q.capture AND x.connection_id = q.connection_id AND x.direction = q.direction
                   AND x.stream_offset = q.stream_offset
LEFT JOIN details y ON y.capture = a.capture AND y.connection_id = a.connection_id AND y.direction = a.direction
                   AND y.stream_offset = a.stream_offset
LEFT JOIN item_counts i ON i.capture = a.capture AND i.connection_id = a.connection_id AND i.direction = a.direction
                         AND i.stream_offset = a.stream_offset
LEFT JOIN roles r ON r.protocol = q.protocol AND r.direction = q.direction AND r.op = q.op
                 AND r.role IN ('publish', 'poll', 'ack', 'position')
WHERE e.status = 'ok'
