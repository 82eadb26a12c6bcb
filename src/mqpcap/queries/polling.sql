-- How wasteful are polling and batching?
--
-- A row per protocol, kind (poll or publish), op, destination and client_ip: requests; of polls empty (answered without
-- a message, or by silence), refused (with an error), likely (the reply is only likely the right one) and unknown (the
-- outcome was not captured); messages, messages_per_request (of known outcome), body_bytes, body_bytes_per_message and,
-- of publishes, compressed. The destination of a poll that does not name one is known only if a message came.
WITH calls AS (
  SELECT m.protocol, m.role AS kind, m.op, COALESCE(m.destination, a.destination) AS destination, m.src_ip AS client_ip,
         CASE WHEN m.role = 'publish' THEN 1
              WHEN m.state = 'silent' OR x.is_empty IS NOT NULL THEN 0
              WHEN m.state IS NULL OR m.state NOT IN ('answered', 'likely') OR m.is_refused THEN NULL
              WHEN y.has_items THEN COALESCE(i.item_count, 0)
              WHEN a.body_len IS NOT NULL THEN 1 ELSE 0 END AS message_count,
         CASE WHEN m.is_refused AND x.is_empty IS NULL THEN 1 ELSE 0 END AS refused,
         CASE WHEN m.role = 'poll' AND m.state = 'likely' THEN 1 ELSE 0 END AS is_likely,
         CASE WHEN m.role = 'publish' THEN COALESCE(m.body_len, 0)
              WHEN m.is_refused THEN 0 ELSE COALESCE(a.body_len, 0) END AS body_len,
         CASE WHEN m.role = 'publish' AND d.compressed THEN 1 ELSE 0 END AS compressed
  FROM operations m
  LEFT JOIN details d ON d.capture = m.capture AND d.connection_id = m.connection_id AND d.direction = m.direction
                     AND d.stream_offset = m.stream_offset
  LEFT JOIN messages a ON a.capture = m.capture AND a.connection_id = m.connection_id AND a.direction = m.reply_direction
                      AND a.stream_offset = m.reply_offset
  LEFT JOIN details y ON y.capture = a.capture AND y.connection_id = a.connection_id AND y.direction = a.direction
                     AND y.stream_offset = a.stream_offset
  LEFT JOIN item_counts i ON i.capture = a.capture AND i.connection_id = a.connection_id AND i.direction = a.direction
                           AND i.stream_offset = a.stream_offset
  LEFT JOIN (SELECT protocol, error_text, 1 AS is_empty FROM roles WHERE role = 'empty') x
    ON x.protocol = m.protocol AND x.error_text = a.error_text
  WHERE m.role IN ('poll', 'publish')
)
SELECT protocol, kind, op, destination, client_ip, COUNT(*) AS requests,
       COUNT(CASE WHEN message_count = 0 THEN 1 END) AS empty, SUM(refused) AS refused, SUM(is_likely) AS likely,
       COUNT(CASE WHEN message_count IS NULL AND refused = 0 THEN 1 END) AS unknown,
       COALESCE(SUM(message_count), 0) AS messages, AVG(message_count) AS messages_per_request,
       SUM(body_len) AS body_bytes, SUM(body_len) * 1e0 / NULLIF(SUM(message_count), 0) AS body_bytes_per_message,
       SUM(compressed) AS compressed
FROM calls
GROUP BY protocol, kind, op, destination, client_ip
ORDER BY protocol NULLS LAST, kind NULLS LAST, op NULLS LAST, destination NULLS LAST, client_ip NULLS LAST
