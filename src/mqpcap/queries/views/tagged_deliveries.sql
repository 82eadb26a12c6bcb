-- Deliveries with a tag to acknowledge. Tags count per subscription of the whole broker. The answered poll names the
-- subscription, else it is the only subscription of the connection.
SELECT o.protocol, o.capture, o.connection_id, o.destination, o.ts_ns, o.stream_offset, d.tag,
       COALESCE(p.subscription, s.subscription) AS subscription
FROM operations o
JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
              AND d.stream_offset = o.stream_offset
LEFT JOIN details p ON p.capture = o.capture AND p.connection_id = o.connection_id AND p.direction = o.request_direction
                   AND p.stream_offset = o.request_offset
LEFT JOIN (
  SELECT capture, connection_id, MIN(subscription) AS subscription FROM details
  WHERE direction = 'c2s' AND subscription <> 0
  GROUP BY capture, connection_id HAVING MIN(subscription) = MAX(subscription)
) s ON s.capture = o.capture AND s.connection_id = o.connection_id
WHERE o.role = 'deliver' AND d.tag IS NOT NULL
