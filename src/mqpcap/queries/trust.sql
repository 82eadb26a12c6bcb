-- How far can the capture be trusted?
--
-- A row per protocol (null: connections of foreign protocols):
--   connections, and of them begun_before (no SYN captured), not_ended, one_sided (packets of one side only) and
--     by_port_only (the port alone decided the protocol)
--   bytes captured: decoded_bytes became messages (decoded_share), undecoded_bytes did not, of them encrypted_bytes;
--     gap_bytes never captured; conflict_bytes sent again with other content; retransmitted_bytes
--   messages, and of them flawed, resynced (found by a search) and backward_in_time (captured before the previous one)
--   likely: exchanges whose pair no evidence proves
--   is_whole: no gap; nothing undecoded, flawed or in conflict; both sides of every connection from its SYN on
WITH ordered AS (
  SELECT *, LAG(ts_ns) OVER (PARTITION BY capture, connection_id, direction ORDER BY stream_offset) AS before_ns
  FROM messages
),
decoded AS (
  SELECT capture, connection_id, COUNT(*) AS messages, SUM(frame_len) AS decoded_bytes,
         COUNT(CASE WHEN flaw IS NOT NULL THEN 1 END) AS flawed, COUNT(CASE WHEN resynced THEN 1 END) AS resynced,
         COUNT(CASE WHEN end_ts_ns < ts_ns OR ts_ns < before_ns THEN 1 END) AS backward_in_time
  FROM ordered GROUP BY capture, connection_id
),
lost AS (
  SELECT capture, connection_id, SUM(CASE WHEN kind = 'gap' THEN length ELSE 0 END) AS gap_bytes,
         SUM(CASE WHEN kind = 'undecoded' THEN length ELSE 0 END) AS undecoded_bytes,
         SUM(CASE WHEN kind = 'conflict' THEN length ELSE 0 END) AS conflict_bytes,
         SUM(CASE WHEN kind = 'undecoded' AND reason = 'tls' THEN length ELSE 0 END) AS encrypted_bytes
  FROM problems
  WHERE reason <> 'proxy protocol' -- a balancer's header: nothing of the protocol is lost
  GROUP BY capture, connection_id
),
pairs AS (
  SELECT capture, connection_id, COUNT(*) AS likely FROM exchanges WHERE state = 'likely'
  GROUP BY capture, connection_id
)
SELECT c.protocol, COUNT(*) AS connections, COUNT(CASE WHEN NOT c.syn_seen THEN 1 END) AS begun_before,
       COUNT(CASE WHEN c.end_state = 'open' THEN 1 END) AS not_ended,
       COUNT(CASE WHEN c.packets_c2s = 0 OR c.packets_s2c = 0 THEN 1 END) AS one_sided,
       COUNT(CASE WHEN c.identified_by = 'port' THEN 1 END) AS by_port_only,
       SUM(c.bytes_c2s + c.bytes_s2c) AS bytes, SUM(COALESCE(d.decoded_bytes, 0)) AS decoded_bytes,
       SUM(COALESCE(d.decoded_bytes, 0)) * 1e0 / NULLIF(SUM(c.bytes_c2s + c.bytes_s2c), 0) AS decoded_share,
       SUM(COALESCE(l.undecoded_bytes, 0)) AS undecoded_bytes, SUM(COALESCE(l.encrypted_bytes, 0)) AS encrypted_bytes,
       SUM(COALESCE(l.gap_bytes, 0)) AS gap_bytes, SUM(COALESCE(l.conflict_bytes, 0)) AS conflict_bytes,
       SUM(c.retransmitted_bytes_c2s + c.retransmitted_bytes_s2c) AS retransmitted_bytes,
       SUM(COALESCE(d.messages, 0)) AS messages, SUM(COALESCE(d.flawed, 0)) AS flawed,
       SUM(COALESCE(d.resynced, 0)) AS resynced, SUM(COALESCE(d.backward_in_time, 0)) AS backward_in_time,
       SUM(COALESCE(p.likely, 0)) AS likely,
       SUM(COALESCE(l.gap_bytes, 0) + COALESCE(l.undecoded_bytes, 0) + COALESCE(l.conflict_bytes, 0)
           + COALESCE(d.flawed, 0)) = 0
         AND COUNT(CASE WHEN NOT c.syn_seen OR c.packets_c2s = 0 OR c.packets_s2c = 0 THEN 1 END) = 0 AS is_whole
FROM connections c
LEFT JOIN decoded d ON d.capture = c.capture AND d.connection_id = c.connection_id
LEFT JOIN lost l ON l.capture = c.capture AND l.connection_id = c.connection_id
LEFT JOIN pairs p ON p.capture = c.capture AND p.connection_id = c.connection_id
GROUP BY c.protocol
ORDER BY c.protocol NULLS LAST
