-- Deliveries with a tag to acknowledge. Tags count per subscription of the whole broker. The answered poll names the
-- subscription, else it is the only subscription of the connection.
SELECT o.protocol, o.capture, o.connection_id, o.destination, o.ts_ns, o.stream_offset, d.tag,
       COALESCE(p.subscription, s.subscription) AS subscription
FROM operations o
JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
              AND d.stream_offset = o.stream_offset
LEFT JOIN exchanges e ON e.capture = o.capture AND e.connection_id = o.connection_id AND e.reply_offset = o.stream_offset
                     AND e.request_direction <> o.direction
LEFT JOIN details p ON p.capture = e.capture AND p.connection_id = e.connection_id AND p.direction = e.request_direction
                   AND p.stream_offset = e.request_offset
LEFT JOIN (
  SELECT capture, connection_id, MIN(subscription) AS subscription FROM details
  WHERE direction = 'c2s' AND subscription <> 0
  GROUP BY capture, connection_id HAVING MIN(subscription) = MAX(subscription)
) s ON s.capture = o.capture AND s.connection_id = o.connection_id
WHERE o.role = 'deliver' AND d.tag IS NOT NULL
