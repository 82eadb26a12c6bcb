-- Operations that give, bring or ask for messages of users, and how many such messages each carries.
SELECT o.*,
       CASE WHEN o.role IN ('publish', 'deliver') THEN 1
            WHEN o.role <> 'reply' OR o.body_len IS NULL THEN 0
            WHEN d.has_items THEN COALESCE(i.item_count, 0) ELSE 1 END AS message_count
FROM operations o
LEFT JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
                   AND d.stream_offset = o.stream_offset
LEFT JOIN item_counts i ON i.capture = o.capture AND i.connection_id = o.connection_id AND i.direction = o.direction
                         AND i.stream_offset = o.stream_offset
WHERE o.role IN ('publish', 'deliver', 'poll', 'reply', 'subscribe', 'ack', 'lock', 'unlock', 'grant')
