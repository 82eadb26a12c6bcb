-- Who reconnects, fails to log in, speaks another version or stops its heartbeats?
--
-- A row per protocol (null: a foreign one), server_ip, server_port and client_ip, busiest first: connections;
-- reconnects, begun when all before them had ended; how they ended (reset, closed, still_open); median_life_s, first to
-- last packet; logins, failed_logins, version_mismatches, heartbeats, and longest_heartbeat_gap_s between two of one
-- connection. likely counts the failed logins whose request is only likely the right one.
WITH acted AS (
  SELECT m.capture, m.connection_id, r.role,
         m.ts_ns - LAG(m.ts_ns) OVER (PARTITION BY m.capture, m.connection_id, r.role
                                      ORDER BY m.ts_ns, m.stream_offset) AS gap_ns, 0 AS is_likely
  FROM messages m JOIN roles r ON r.protocol = m.protocol AND r.direction = m.direction AND r.op = m.op
  WHERE r.role IN ('heartbeat', 'login')
  UNION ALL
  -- Where a protocol has words for a login that is refused, only these count.
  SELECT m.capture, m.connection_id, COALESCE(x.role, 'denied'), CAST(NULL AS BIGINT),
         CASE WHEN e.state = 'likely' THEN 1 ELSE 0 END
  FROM messages m
  LEFT JOIN paired e ON e.capture = m.capture AND e.connection_id = m.connection_id AND e.direction = m.direction
                    AND e.stream_offset = m.stream_offset
  LEFT JOIN (SELECT protocol, error_text, role FROM roles WHERE role IN ('denied', 'outdated')) x
    ON x.protocol = m.protocol AND x.error_text = m.error_text
  LEFT JOIN (SELECT DISTINCT protocol, op, 1 AS is_login FROM roles WHERE role = 'login') l
    ON l.protocol = m.protocol AND l.op = e.op
  LEFT JOIN (SELECT DISTINCT protocol, 1 AS has_words FROM roles WHERE role = 'denied') w ON w.protocol = m.protocol
  WHERE m.direction = 's2c' AND m.status = 'error'
    AND (x.role IS NOT NULL OR (l.is_login IS NOT NULL AND w.has_words IS NULL))
),
acts AS (
  SELECT capture, connection_id, COUNT(CASE WHEN role = 'login' THEN 1 END) AS logins,
         COUNT(CASE WHEN role = 'denied' THEN 1 END) AS failed_logins,
         COUNT(CASE WHEN role = 'outdated' THEN 1 END) AS version_mismatches,
         COUNT(CASE WHEN role = 'heartbeat' THEN 1 END) AS heartbeats,
         MAX(CASE WHEN role = 'heartbeat' THEN gap_ns END) AS gap_ns, SUM(is_likely) AS likely
  FROM acted GROUP BY capture, connection_id
),
ended AS (
  SELECT *, MAX(last_ts_ns) OVER (PARTITION BY capture, protocol, server_ip, server_port, client_ip
                                  ORDER BY first_ts_ns, connection_id
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS ended_ns
  FROM connections
),
lives AS (
  SELECT *, LAG(ended_ns) OVER (PARTITION BY capture, protocol, server_ip, server_port, client_ip
                                ORDER BY first_ts_ns, connection_id) AS before_ns,
         ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, client_ip
                            ORDER BY last_ts_ns - first_ts_ns) - 1 AS place,
         COUNT(*) OVER (PARTITION BY protocol, server_ip, server_port, client_ip) - 1 AS last_place
  FROM ended
)
SELECT l.protocol, l.server_ip, l.server_port, l.client_ip, COUNT(*) AS connections,
       COUNT(CASE WHEN l.first_ts_ns > l.before_ns THEN 1 END) AS reconnects,
       COUNT(CASE WHEN l.end_state = 'reset' THEN 1 END) AS reset,
       COUNT(CASE WHEN l.end_state = 'closed' THEN 1 END) AS closed,
       COUNT(CASE WHEN l.end_state = 'open' THEN 1 END) AS still_open,
       SUM((l.last_ts_ns - l.first_ts_ns) * GREATEST(0e0, 1 - ABS(l.place - 0.5e0 * l.last_place))) / 1e9 AS median_life_s,
       SUM(COALESCE(a.logins, 0)) AS logins, SUM(COALESCE(a.failed_logins, 0)) AS failed_logins,
       SUM(COALESCE(a.version_mismatches, 0)) AS version_mismatches, SUM(COALESCE(a.heartbeats, 0)) AS heartbeats,
       MAX(a.gap_ns) / 1e9 AS longest_heartbeat_gap_s, SUM(COALESCE(a.likely, 0)) AS likely
FROM lives l
LEFT JOIN acts a ON a.capture = l.capture AND a.connection_id = l.connection_id
GROUP BY l.protocol, l.server_ip, l.server_port, l.client_ip
ORDER BY connections DESC NULLS LAST, l.protocol NULLS LAST, l.server_ip NULLS LAST, l.server_port NULLS LAST,
         l.client_ip NULLS LAST
