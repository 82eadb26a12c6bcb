-- How late are acknowledgements, and how many are outstanding?
--
-- A row per protocol, kind, server_ip, server_port, client_ip and destination: due, acked, the time between both
-- (p50_us, p95_us, p99_us, max_us) and most_outstanding at one time:
--   delivery: deliveries with a tag, acknowledged before they came again
--   peek lock: locks taken, given back by their release or by taking the message
--   commit: replies with messages, and commits; the time is from the last such reply of the partition to the commit on
--     the same connection; messages read but not committed are outstanding
-- Refused requests do not count.
WITH events AS (
  -- step 1 opens something to be acknowledged, step -1 closes it.
  SELECT protocol, 'delivery' AS kind, capture, connection_id, destination,
         CAST(connection_id AS STRING) || ' ' || COALESCE(CAST(subscription AS STRING), '') || ' ' || CAST(tag AS STRING)
           AS subject,
         1 AS step, ts_ns, stream_offset
  FROM tagged_deliveries
  UNION ALL
  SELECT o.protocol, 'delivery', o.capture, o.connection_id, CAST(NULL AS STRING),
         CAST(o.connection_id AS STRING) || ' ' || COALESCE(CAST(d.subscription AS STRING), '') || ' '
           || CAST(d.acked_tag AS STRING),
         -1, o.ts_ns, o.stream_offset
  FROM operations o
  JOIN details d ON d.capture = o.capture AND d.connection_id = o.connection_id AND d.direction = o.direction
                AND d.stream_offset = o.stream_offset
  WHERE o.role = 'ack' AND d.acked_tag IS NOT NULL AND NOT o.is_refused
  UNION ALL
  -- A lock is given back, or ends with the message that is taken.
  SELECT protocol, 'peek lock', capture, connection_id, destination,
         dst_ip || ' ' || CAST(dst_port AS STRING) || ' ' || COALESCE(destination, ''),
         CASE WHEN role = 'lock' THEN 1 ELSE -1 END, ts_ns, stream_offset
  FROM operations
  WHERE protocol IN (SELECT protocol FROM roles WHERE role = 'lock') AND role IN ('lock', 'unlock', 'take')
    AND NOT is_refused
),
followed AS (
  SELECT *,
         LEAD(step) OVER (PARTITION BY protocol, capture, subject ORDER BY ts_ns, step DESC, stream_offset) AS next_step,
         LEAD(ts_ns) OVER (PARTITION BY protocol, capture, subject ORDER BY ts_ns, step DESC, stream_offset) AS next_ts_ns
  FROM events
),
due AS (
  SELECT e.protocol, e.kind, e.capture, c.server_ip, c.server_port, c.client_ip, e.destination, e.ts_ns, e.next_ts_ns,
         CASE WHEN e.next_step = -1 THEN e.next_ts_ns - e.ts_ns END AS late_ns
  FROM followed e JOIN connections c ON c.capture = e.capture AND c.connection_id = e.connection_id
  WHERE e.step = 1
),
steps AS (
  SELECT protocol, kind, capture, server_ip, server_port, client_ip, destination, ts_ns AS step_ns, 1 AS step, late_ns
  FROM due
  UNION ALL
  SELECT protocol, kind, capture, server_ip, server_port, client_ip, destination, next_ts_ns, -1, CAST(NULL AS BIGINT)
  FROM due WHERE next_ts_ns IS NOT NULL
),
open_steps AS (
  SELECT *, SUM(step) OVER (PARTITION BY capture, protocol, kind, client_ip, server_ip, server_port, destination
                            ORDER BY step_ns, step ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS outstanding
  FROM steps
),
reads AS (
  SELECT *, CASE WHEN role = 'ack' THEN log_offset END AS committed,
         CASE WHEN NOT (has_items AND item_count = 0) THEN read_to END AS reached_now,
         CASE WHEN role = 'ack' THEN asked_ns ELSE ts_ns END AS read_ns
  FROM log_calls WHERE role IN ('ack', 'poll')
),
eras AS (
  SELECT *, SUM(CASE WHEN reached_now IS NULL THEN 0 ELSE 1 END)
              OVER (PARTITION BY capture, connection_id, destination, partition_id ORDER BY read_ns
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS era
  FROM reads
),
reached AS (
  SELECT *, MAX(reached_now) OVER (PARTITION BY capture, connection_id, destination, partition_id, era) AS read_to_now,
         MAX(CASE WHEN reached_now IS NOT NULL THEN read_ns END)
           OVER (PARTITION BY capture, connection_id, destination, partition_id, era) AS last_read_ns
  FROM eras
),
all_rows AS (
  SELECT protocol, kind, server_ip, server_port, client_ip, destination, CASE WHEN step = 1 THEN 1 END AS is_due,
         CASE WHEN late_ns IS NOT NULL THEN 1 END AS is_acked, late_ns,
         CAST(outstanding AS DECIMAL(38,0)) AS outstanding
  FROM open_steps
  UNION ALL
  SELECT protocol, 'commit', server_ip, server_port, client_ip, destination,
         CASE WHEN reached_now IS NOT NULL THEN 1 END, CASE WHEN committed IS NOT NULL THEN 1 END,
         CASE WHEN role = 'ack' THEN read_ns - last_read_ns END,
         CAST(read_to_now AS DECIMAL(38,0)) - CAST(committed AS DECIMAL(38,0))
  FROM reached
),
ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, kind, server_ip, server_port, client_ip, destination
                               ORDER BY late_ns NULLS LAST) - 1 AS place,
         COUNT(late_ns) OVER (PARTITION BY protocol, kind, server_ip, server_port, client_ip, destination) - 1 AS last_place
  FROM all_rows
)
SELECT protocol, kind, server_ip, server_port, client_ip, destination, COUNT(is_due) AS due, COUNT(is_acked) AS acked,
       SUM(late_ns * GREATEST(0e0, 1 - ABS(place - 0.5e0 * last_place))) / 1000 AS p50_us,
       SUM(late_ns * GREATEST(0e0, 1 - ABS(place - 0.95e0 * last_place))) / 1000 AS p95_us,
       SUM(late_ns * GREATEST(0e0, 1 - ABS(place - 0.99e0 * last_place))) / 1000 AS p99_us,
       MAX(late_ns) / 1000e0 AS max_us, MAX(outstanding) AS most_outstanding
FROM ranked
GROUP BY protocol, kind, server_ip, server_port, client_ip, destination
ORDER BY protocol NULLS LAST, kind NULLS LAST, server_ip NULLS LAST, server_port NULLS LAST, client_ip NULLS LAST,
         destination NULLS LAST
