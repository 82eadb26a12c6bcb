-- How many messages and bytes are there per topic and window of time, for the destinations with most messages?
--
-- Parameters: window_ns (1000000000), top (10).
-- A row per protocol, destination, flow (in: to the broker, out: from it) and window_start_ns (a multiple of window_ns
-- since 1970) with any: messages, body_bytes, messages_per_s, body_bytes_per_s. Counts publishes, refused ones too, and
-- deliveries; a message that is only looked at counts as one that is taken.
WITH carried AS (
  SELECT protocol, destination, CASE WHEN destination IS NULL THEN '' ELSE 'd' || destination END AS destination_key,
         CASE WHEN role = 'publish' THEN 'in' ELSE 'out' END AS flow, ts_ns - ts_ns % :window_ns AS window_start_ns,
         message_count, COALESCE(body_len, 0) AS body_len
  FROM payloads WHERE message_count > 0
),
busiest AS (
  SELECT protocol, destination_key, SUM(message_count) AS total FROM carried
  GROUP BY protocol, destination_key ORDER BY total DESC, protocol, destination_key LIMIT :top
)
SELECT c.protocol, c.destination, c.flow, c.window_start_ns, SUM(c.message_count) AS messages,
       SUM(c.body_len) AS body_bytes, SUM(c.message_count) * 1e9 / :window_ns AS messages_per_s,
       SUM(c.body_len) * 1e9 / :window_ns AS body_bytes_per_s
FROM carried c
JOIN busiest b ON b.protocol = c.protocol AND b.destination_key = c.destination_key
GROUP BY c.protocol, c.destination, c.flow, c.window_start_ns
ORDER BY c.protocol NULLS LAST, c.destination NULLS LAST, c.flow NULLS LAST, c.window_start_ns NULLS LAST
