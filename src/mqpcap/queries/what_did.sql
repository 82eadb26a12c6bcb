-- What did a client do between two moments, as a sequence to read?
--
-- Parameters: client (an address, address:port, or a name: of a login, a client or a sender), start, end (moments; those
-- without a zone are UTC; end is not included).
-- A row per message of the client's connections, by time. state is that of its exchange: likely where no evidence proves
-- the pair. The message is identified by capture_file, first_packet, capture, connection_id, direction, stream_offset.
WITH connections_of_client AS (
  SELECT DISTINCT m.capture, m.connection_id
  FROM messages m
  LEFT JOIN (SELECT DISTINCT protocol, op, 1 AS is_account FROM roles WHERE role = 'account') r
    ON r.protocol = m.protocol AND r.op = m.op
  WHERE CASE WHEN m.direction = 'c2s' THEN m.src_ip ELSE m.dst_ip END = :client
     OR CASE WHEN m.direction = 'c2s' THEN m.src_ip || ':' || CAST(m.src_port AS STRING)
             ELSE m.dst_ip || ':' || CAST(m.dst_port AS STRING) END = :client
     OR (m.direction = 'c2s' AND m.client_name = :client AND r.is_account IS NULL)
)
SELECT m.ts_ns, CASE WHEN m.direction = 'c2s' THEN m.src_ip ELSE m.dst_ip END AS client_ip,
       CASE WHEN m.direction = 'c2s' THEN m.src_port ELSE m.dst_port END AS client_port,
       CASE WHEN m.direction = 'c2s' THEN m.dst_ip ELSE m.src_ip END AS server_ip,
       CASE WHEN m.direction = 'c2s' THEN m.dst_port ELSE m.src_port END AS server_port,
       m.direction, m.protocol, m.op_code, m.op, m.destination, m.body_len, m.status, m.error_code, m.error_text, m.flaw,
       m.gap_before_bytes, e.state, m.capture_file, m.first_packet, m.capture, m.connection_id, m.stream_offset
FROM messages m
JOIN connections_of_client c ON c.capture = m.capture AND c.connection_id = m.connection_id
LEFT JOIN paired e ON e.capture = m.capture AND e.connection_id = m.connection_id AND e.direction = m.direction
                  AND e.stream_offset = m.stream_offset
WHERE m.ts_ns >= :start AND m.ts_ns < :end
ORDER BY m.ts_ns NULLS LAST, m.capture NULLS LAST, m.capture_file NULLS LAST, m.first_packet NULLS LAST,
         m.connection_id NULLS LAST, m.direction NULLS LAST, m.stream_offset NULLS LAST
