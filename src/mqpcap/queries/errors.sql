-- Which errors are there, how many, per client and operation?
--
-- A row per protocol, server_ip, server_port, client_ip, client_name, op (of the request if known, else of the reply),
-- destination, error_code and error_text, most frequent first: errors, first_ts_ns, last_ts_ns, and likely: those whose
-- request is only likely the right one.
WITH failures AS (
  SELECT a.protocol, a.src_ip AS server_ip, a.src_port AS server_port, a.dst_ip AS client_ip,
         COALESCE(e.client_name, NULLIF(a.client_name, '')) AS client_name, COALESCE(e.op, a.op) AS op,
         COALESCE(e.destination, a.destination) AS destination, a.error_code, a.error_text, a.ts_ns,
         CASE WHEN e.state = 'likely' THEN 1 ELSE 0 END AS is_likely
  FROM messages a
  LEFT JOIN paired e ON e.capture = a.capture AND e.connection_id = a.connection_id AND e.direction = a.direction
                    AND e.stream_offset = a.stream_offset
  WHERE a.direction = 's2c' AND a.status = 'error'
)
SELECT protocol, server_ip, server_port, client_ip, client_name, op, destination, error_code, error_text,
       COUNT(*) AS errors, MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns, SUM(is_likely) AS likely
FROM failures
GROUP BY protocol, server_ip, server_port, client_ip, client_name, op, destination, error_code, error_text
ORDER BY errors DESC NULLS LAST, protocol NULLS LAST, op NULLS LAST, error_code NULLS LAST, error_text NULLS LAST,
         destination NULLS LAST, client_ip NULLS LAST, client_name NULLS LAST, server_ip NULLS LAST,
         server_port NULLS LAST
