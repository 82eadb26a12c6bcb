-- What was retried, redelivered or duplicated?
--
-- A row per protocol, kind, destination and key that came more than once: times, first_ts_ns, last_ts_ns and the
-- connections of both:
--   sent again, delivered again: the identity of a message by its sender, on one connection; the tag of a delivery, of
--     one subscription; the id of a request, by one client address, where ids outlive connections
--   sent on reconnect: equal bodies, of an equal id if they have one (else the key is their size), to one destination, by
--     one client address, on a connection that began when an earlier one had ended
--   read again: partition:offset, by one connection
--   put back: locks released, counted per destination, without a key
-- TCP retransmissions are in the table connections.
WITH carried AS (
  -- Clients count their ids from 1, so only ids of the same sender identify messages.
  SELECT o.protocol, CASE WHEN o.direction = 'c2s' THEN 'sent again' ELSE 'delivered again' END AS kind, o.capture,
         o.connection_id, CAST(o.connection_id AS STRING) || o.direction || COALESCE(d.sender, '') AS scope,
         o.destination, COALESCE(o.message_id, d.identity) AS repeat_key, o.ts_ns
  FROM operations o
  LEFT JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
                     AND d.stream_offset = o.stream_offset
  WHERE o.role IN ('publish', 'deliver')
),
resent AS (
  SELECT o.protocol, 'sent on reconnect' AS kind, o.capture, o.connection_id,
         o.src_ip || ' ' || o.dst_ip || ' ' || CAST(o.dst_port AS STRING) AS scope, o.destination,
         COALESCE(o.message_id, CAST(o.body_len AS STRING) || ' bytes') AS repeat_key, o.ts_ns, d.body, c.first_ts_ns AS began_ns,
         c.last_ts_ns AS ended_ns
  FROM operations o
  JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
                AND d.stream_offset = o.stream_offset
  JOIN connections c ON c.capture = o.capture AND c.connection_id = o.connection_id
  WHERE o.role = 'publish' AND o.direction = 'c2s' AND d.body IS NOT NULL
),
retried AS (
  -- Clients may open a connection for each request, so a retry is searched for among all connections of an address.
  SELECT m.protocol, 'sent again' AS kind, m.capture, m.connection_id,
         m.src_ip || ' ' || m.dst_ip || ' ' || CAST(m.dst_port AS STRING) || ' ' || COALESCE(m.op, '') || ' '
           || CAST(m.frame_len AS STRING) AS scope,
         m.destination, m.correlation_id AS repeat_key, m.ts_ns
  FROM messages m JOIN roles r ON r.protocol = m.protocol AND r.role = 'lasting'
  WHERE m.direction = 'c2s' AND m.flaw IS NULL
),
read_again AS (
  SELECT c.protocol, 'read again' AS kind, c.capture, c.connection_id, CAST(c.connection_id AS STRING) AS scope,
         c.destination, CAST(c.partition_id AS STRING) || ':' || CAST(i.item_key AS STRING) AS repeat_key, c.asked_ns AS ts_ns
  FROM log_calls c
  JOIN items i ON i.capture = c.capture AND i.connection_id = c.connection_id
              AND i.stream_offset = c.reply_stream_offset AND i.direction <> c.request_direction
  WHERE c.role = 'poll'
  UNION ALL
  SELECT protocol, 'read again', capture, connection_id, CAST(connection_id AS STRING), destination,
         CAST(partition_id AS STRING) || ':' || CAST(log_offset AS STRING), asked_ns
  FROM log_calls WHERE role = 'poll' AND next_offset IS NULL
),
tagged AS (
  SELECT d.protocol, 'delivered again' AS kind, d.capture, d.connection_id,
         c.server_ip || ' ' || CAST(c.server_port AS STRING) || ' ' || CAST(d.subscription AS STRING) AS scope,
         d.destination, CAST(d.tag AS STRING) AS repeat_key, d.ts_ns
  FROM tagged_deliveries d
  JOIN connections c ON c.capture = d.capture AND c.connection_id = d.connection_id
),
named AS (
  SELECT * FROM carried UNION ALL SELECT * FROM retried UNION ALL SELECT * FROM read_again UNION ALL SELECT * FROM tagged
),
sightings AS (
  SELECT *, CAST(NULL AS BINARY) AS body, CAST(NULL AS BIGINT) AS began_ns, CAST(NULL AS BIGINT) AS ended_ns FROM named
  UNION ALL SELECT * FROM resent
),
ordered AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, kind, capture, scope, destination, repeat_key, body
                               ORDER BY ts_ns, connection_id) AS place,
         COUNT(*) OVER (PARTITION BY protocol, kind, capture, scope, destination, repeat_key, body) AS last_place,
         MAX(began_ns) OVER (PARTITION BY protocol, kind, capture, scope, destination, repeat_key, body) AS last_begin_ns,
         MIN(ended_ns) OVER (PARTITION BY protocol, kind, capture, scope, destination, repeat_key, body) AS first_end_ns
  FROM sightings WHERE repeat_key IS NOT NULL AND scope IS NOT NULL
),
put_back AS (
  SELECT protocol, destination, capture, connection_id, ts_ns,
         ROW_NUMBER() OVER (PARTITION BY protocol, capture, destination ORDER BY ts_ns, connection_id) AS place,
         COUNT(*) OVER (PARTITION BY protocol, capture, destination) AS last_place
  FROM operations WHERE role = 'unlock'
),
answers AS (
  SELECT protocol, kind, destination, repeat_key, COUNT(*) AS times, capture,
         MAX(CASE WHEN place = 1 THEN connection_id END) AS first_connection_id,
         MAX(CASE WHEN place = last_place THEN connection_id END) AS last_connection_id,
         MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns
  FROM ordered WHERE last_place > 1 AND (body IS NULL OR last_begin_ns > first_end_ns)
  GROUP BY protocol, kind, capture, scope, destination, repeat_key, body
  UNION ALL
  SELECT protocol, 'put back', destination, CAST(NULL AS STRING), COUNT(*), capture,
         MAX(CASE WHEN place = 1 THEN connection_id END), MAX(CASE WHEN place = last_place THEN connection_id END),
         MIN(ts_ns), MAX(ts_ns)
  FROM put_back
  GROUP BY protocol, capture, destination
)
SELECT protocol, kind, destination, repeat_key, times, capture, first_connection_id, last_connection_id, first_ts_ns,
       last_ts_ns
FROM answers
ORDER BY protocol NULLS LAST, kind NULLS LAST, first_ts_ns NULLS LAST, destination NULLS LAST, repeat_key NULLS LAST,
         capture NULLS LAST
