-- The number of messages in each reply that carries a list of them.
SELECT capture, connection_id, direction, stream_offset, COUNT(*) AS item_count
FROM items
GROUP BY capture, connection_id, direction, stream_offset
