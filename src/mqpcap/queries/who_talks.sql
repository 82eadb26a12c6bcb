-- Who are the producers and consumers of each topic or queue?
--
-- A row per protocol, server_ip, server_port, client_ip, client_name, role (producer or consumer) and destination:
--   group_name, groups: the first group or queue by name that the client named, and the number of them
--   requests: its publishes; or its binds, subscriptions, polls and acknowledgements
--   messages, body_bytes: those it sent, also refused ones, or received
--   first_ts_ns, last_ts_ns
--   likely: messages whose request or reply is only likely the right one
-- A message without a destination has that of its exchange. client_name is the name in a message or its request, else
-- the user of the last granted login, the name under which the connection sends, or the user of its login.
WITH senders AS (
  -- The name under which a connection sends, or logs in elsewhere; not the account that it asks about.
  SELECT m.capture, m.connection_id, MAX(m.client_name) AS client_name
  FROM messages m
  LEFT JOIN (SELECT DISTINCT protocol, op, 1 AS is_login FROM roles WHERE role IN ('login', 'account')) r
    ON r.protocol = m.protocol AND r.op = m.op
  WHERE m.direction = 'c2s' AND r.is_login IS NULL
  GROUP BY m.capture, m.connection_id
),
counted AS (
  SELECT *, CASE WHEN role = 'grant' AND status = 'ok' THEN client_name END AS granted_name,
         SUM(CASE WHEN role = 'grant' AND status = 'ok' AND client_name IS NOT NULL THEN 1 ELSE 0 END)
           OVER (PARTITION BY capture, connection_id ORDER BY ts_ns, stream_offset, direction
                 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS login
  FROM payloads
),
granted AS (
  SELECT *, MAX(granted_name) OVER (PARTITION BY capture, connection_id, login) AS login_name FROM counted
),
named AS (
  SELECT g.protocol, CASE WHEN g.direction = 'c2s' THEN g.dst_ip ELSE g.src_ip END AS server_ip,
         CASE WHEN g.direction = 'c2s' THEN g.dst_port ELSE g.src_port END AS server_port,
         CASE WHEN g.direction = 'c2s' THEN g.src_ip ELSE g.dst_ip END AS client_ip,
         COALESCE(CASE WHEN g.direction = 'c2s' THEN g.client_name END, g.asked_by, g.login_name, s.client_name)
           AS client_name,
         CASE WHEN g.role = 'publish' THEN 'producer' ELSE 'consumer' END AS role, g.destination, g.group_name,
         CASE WHEN g.direction = 'c2s' THEN 1 ELSE 0 END AS is_request, g.message_count,
         CASE WHEN g.role IN ('publish', 'deliver', 'reply') THEN COALESCE(g.body_len, 0) ELSE 0 END AS body_bytes,
         CASE WHEN g.state = 'likely' AND g.message_count > 0 THEN 1 ELSE 0 END AS is_likely, g.ts_ns
  FROM granted g
  LEFT JOIN senders s ON s.capture = g.capture AND s.connection_id = g.connection_id
  WHERE g.role <> 'grant'
)
SELECT protocol, server_ip, server_port, client_ip, client_name, role, destination, MIN(group_name) AS group_name,
       COUNT(DISTINCT group_name) AS groups, SUM(is_request) AS requests, SUM(message_count) AS messages,
       SUM(body_bytes) AS body_bytes, MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns, SUM(is_likely) AS likely
FROM named
GROUP BY protocol, server_ip, server_port, client_ip, client_name, role, destination
ORDER BY protocol NULLS LAST, server_ip NULLS LAST, server_port NULLS LAST, destination NULLS LAST, role NULLS LAST,
         client_ip NULLS LAST, client_name NULLS LAST
