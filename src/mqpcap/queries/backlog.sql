-- Which consumers fall behind, and by how much?
--
-- A row per protocol, server_ip, server_port, destination, partition_id, consumer and how: produced, consumed and
-- backlog (messages) at the capture's end:
--   broker: as the broker's last reply about the group reports it
--   commit: from the group's position, by its last commit, query or reset to an offset, up to the end of the log: the
--     highest offset that was produced, read or reported. A position of -1 is that of a group that has read nothing
--   read: from the offset after the last message that the client (ip:port) was sent, up to the end of the log
--   counts: messages published since the consumer subscribed, less those delivered to it; redeliveries count once.
--     Dropped, expired and filtered messages are in the backlog. Without subscriptions: publishes less messages taken.
-- Brokers that number messages have the first three, brokers that keep none have no backlog. A backlog is never below 0:
-- messages may have been published before the capture, and a position may be beyond the log.
WITH ends AS (
  SELECT c.protocol, c.server_ip, c.server_port, c.destination, c.partition_id, c.reply_log_offset + 1 AS log_end
  FROM log_calls c
  LEFT JOIN (SELECT DISTINCT protocol, op, 1 AS is_deferred FROM roles WHERE role = 'deferred') d
    ON d.protocol = c.protocol AND d.op = c.op
  WHERE c.role = 'publish' AND d.is_deferred IS NULL
  UNION ALL
  SELECT protocol, server_ip, server_port, destination, partition_id, COALESCE(read_to, latest_offset) FROM log_calls
),
produced AS (
  SELECT protocol, server_ip, server_port, destination, partition_id, MAX(log_end) AS log_end
  FROM ends GROUP BY protocol, server_ip, server_port, destination, partition_id
),
positions AS (
  SELECT protocol, server_ip, server_port, destination, partition_id, group_name AS consumer, 'commit' AS how,
         COALESCE(reply_log_offset, log_position) AS log_offset, ts_ns
  FROM log_calls WHERE role IN ('ack', 'position')
  UNION ALL
  SELECT protocol, server_ip, server_port, destination, partition_id, client_ip || ':' || CAST(client_port AS STRING),
         'read', read_to, ts_ns
  FROM log_calls WHERE role = 'poll' AND read_to IS NOT NULL
),
ordered AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, destination, partition_id, consumer, how
                               ORDER BY ts_ns DESC, log_offset DESC NULLS LAST) AS newest
  FROM positions
),
reported AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, destination, partition_id, group_name
                               ORDER BY ts_ns DESC, lag DESC) AS newest
  FROM log_calls WHERE lag IS NOT NULL
),
sent AS (
  -- Operations that were not refused, at brokers that keep messages and do not number them.
  SELECT o.protocol, o.capture, n.server_ip, n.server_port, o.destination, o.role, o.ts_ns, o.body_len,
         CASE WHEN q.role IS NOT NULL AND o.group_name IS NOT NULL THEN o.group_name
              ELSE n.client_ip || ':' || CAST(n.client_port AS STRING) END AS consumer,
         -- A queue is bound once, however often a client binds it; a client gets a copy for each of its subscriptions.
         CASE WHEN q.role IS NOT NULL AND o.group_name IS NOT NULL THEN -1 ELSE o.stream_offset END AS subscription,
         CAST(o.connection_id AS STRING)
           || COALESCE(' tag ' || CAST(d.tag AS STRING), ' at ' || CAST(o.stream_offset AS STRING)) AS delivery
  FROM operations o
  JOIN connections n ON n.capture = o.capture AND n.connection_id = o.connection_id
  LEFT JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
                     AND d.stream_offset = o.stream_offset
  LEFT JOIN roles q ON q.protocol = o.protocol AND q.role = 'shared'
  WHERE o.protocol NOT IN (SELECT protocol FROM roles WHERE role IN ('numbered', 'transient'))
    AND NOT o.is_refused AND COALESCE(o.status, '') <> 'error'
),
wanted AS (
  SELECT capture, protocol, server_ip, server_port, destination, consumer, MIN(ts_ns) AS since_ns FROM sent
  WHERE role = 'subscribe' GROUP BY capture, protocol, server_ip, server_port, destination, consumer, subscription
),
offered AS (
  SELECT w.protocol, w.server_ip, w.server_port, w.destination, w.consumer,
         COUNT(CASE WHEN p.ts_ns > w.since_ns THEN 1 END) AS produced
  FROM wanted w
  LEFT JOIN (SELECT * FROM sent WHERE role = 'publish') p
    ON p.capture = w.capture AND p.protocol = w.protocol AND p.server_ip = w.server_ip
   AND p.server_port = w.server_port AND p.destination = w.destination
  GROUP BY w.protocol, w.server_ip, w.server_port, w.destination, w.consumer
),
copies AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY capture, protocol, server_ip, server_port, destination, consumer, delivery
                               ORDER BY ts_ns) AS copy
  FROM sent WHERE role = 'deliver'
),
received AS (
  SELECT protocol, server_ip, server_port, destination, consumer, COUNT(*) AS consumed
  FROM copies WHERE copy = 1 GROUP BY protocol, server_ip, server_port, destination, consumer
),
balance AS (
  SELECT protocol, server_ip, server_port, destination,
         COUNT(CASE WHEN role = 'publish' THEN 1 END) AS produced,
         COUNT(CASE WHEN role = 'taken' AND body_len IS NOT NULL THEN 1 END) AS consumed
  FROM sent
  WHERE role IN ('publish', 'taken') AND protocol NOT IN (SELECT protocol FROM roles WHERE role = 'subscribe')
  GROUP BY protocol, server_ip, server_port, destination
),
counted AS (
  SELECT COALESCE(o.protocol, r.protocol) AS protocol, COALESCE(o.server_ip, r.server_ip) AS server_ip,
         COALESCE(o.server_port, r.server_port) AS server_port, COALESCE(o.destination, r.destination) AS destination,
         COALESCE(o.consumer, r.consumer) AS consumer, o.produced, COALESCE(r.consumed, 0) AS consumed
  FROM offered o
  FULL JOIN received r ON r.protocol = o.protocol AND r.server_ip = o.server_ip AND r.server_port = o.server_port
                      AND r.destination = o.destination AND r.consumer = o.consumer
),
answers AS (
  SELECT protocol, server_ip, server_port, destination, partition_id, group_name AS consumer, 'broker' AS how,
         CAST(latest_offset AS DECIMAL(38,0)) AS produced, CAST(committed_offset AS DECIMAL(38,0)) AS stored,
         CAST(lag AS DECIMAL(38,0)) AS lag
  FROM reported WHERE newest = 1
  UNION ALL
  SELECT c.protocol, c.server_ip, c.server_port, c.destination, c.partition_id, c.consumer, c.how,
         CAST(p.log_end AS DECIMAL(38,0)), CAST(c.log_offset AS DECIMAL(38,0)), CAST(NULL AS DECIMAL(38,0)) AS lag
  FROM ordered c
  LEFT JOIN produced p ON p.protocol = c.protocol AND p.server_ip = c.server_ip AND p.server_port = c.server_port
                      AND p.destination = c.destination AND p.partition_id = c.partition_id
  WHERE c.newest = 1
  UNION ALL
  SELECT protocol, server_ip, server_port, destination, CAST(NULL AS INT) AS partition_id, consumer, 'counts' AS how,
         CAST(produced AS DECIMAL(38,0)), CAST(consumed AS DECIMAL(38,0)), CAST(NULL AS DECIMAL(38,0)) AS lag
  FROM counted
  UNION ALL
  SELECT protocol, server_ip, server_port, destination, CAST(NULL AS INT) AS partition_id,
         CAST(NULL AS STRING) AS consumer, 'counts' AS how,
         CAST(produced AS DECIMAL(38,0)), CAST(consumed AS DECIMAL(38,0)), CAST(NULL AS DECIMAL(38,0)) AS lag
  FROM balance
),
signed AS (
  -- A broker stores -1 as the largest number of 64 bits.
  SELECT *, CASE WHEN stored > 9223372036854775807 THEN stored - 18446744073709551616 ELSE stored END AS consumed,
         CASE WHEN stored > 9223372036854775807 THEN 0 ELSE stored END AS reached
  FROM answers
)
SELECT protocol, server_ip, server_port, destination, partition_id, consumer, how, produced, consumed,
       CASE WHEN lag IS NOT NULL THEN lag WHEN produced < reached THEN 0 ELSE produced - reached END AS backlog
FROM signed
ORDER BY protocol NULLS LAST, server_ip NULLS LAST, server_port NULLS LAST, destination NULLS LAST,
         partition_id NULLS LAST, consumer NULLS LAST, how NULLS LAST
