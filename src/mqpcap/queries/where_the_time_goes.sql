-- Is it the network, the broker or the client?
--
-- A row per protocol, server_ip, server_port and client_ip, over its answered exchanges; likely ones among them are
-- counted. Each is cut in four, as seen at the capture, with the percentiles _p50_us and _p99_us:
--   sending, receiving: first to last packet of the request, of the answer
--   waiting: between them: the broker, and the network between capture and broker. It ends at the answer's first byte, so
--     a broker that is slow to write the rest is in receiving
--   thinking: from the end of the previous answer to the request: the client, and the network between it and the
--     capture; requests sent before that answer have none
-- transfer_us (sending and receiving), broker_us and client_us are the sums, mostly names the largest. rtt_at_most_us is
-- the shortest wait: no round trip between capture and broker takes longer. retransmitted_bytes and missing_bytes are
-- those of all connections between the two. Where the answer is another client's, waiting contains that client.
-- Time with a closed window counts to the side that closed it, in the sums and in mostly: it leaves the longest exchange
-- of its connection, and those that waited with it; if it is longer than that, it leaves all of them in proportion.
WITH parts AS (
  SELECT e.capture, e.connection_id, e.protocol, e.server_ip, e.server_port, e.client_ip, e.state,
         q.end_ts_ns AS sent_ns, a.end_ts_ns AS replied_ns, q.end_ts_ns - q.ts_ns AS sending_ns,
         GREATEST(a.ts_ns - q.end_ts_ns, 0) AS waiting_ns, a.end_ts_ns - a.ts_ns AS receiving_ns,
         q.ts_ns - LAG(a.end_ts_ns) OVER (PARTITION BY e.capture, e.connection_id ORDER BY e.request_offset) AS pause_ns
  FROM exchanges e
  JOIN messages q ON q.capture = e.capture AND q.connection_id = e.connection_id AND q.direction = e.request_direction
                 AND q.stream_offset = e.request_offset
  JOIN messages a ON a.capture = e.capture AND a.connection_id = e.connection_id AND a.stream_offset = e.reply_offset
                 AND a.direction <> q.direction
),
thought AS (
  SELECT *, CASE WHEN pause_ns >= 0 THEN pause_ns END AS thinking_ns FROM parts
),
timed AS (
  SELECT *, waiting_ns + receiving_ns AS answer_ns, sending_ns + COALESCE(thinking_ns, 0) AS request_ns FROM thought
),
compared AS (
  SELECT *,
         ROW_NUMBER() OVER (PARTITION BY capture, connection_id ORDER BY answer_ns DESC, sent_ns, replied_ns)
           AS by_answer,
         ROW_NUMBER() OVER (PARTITION BY capture, connection_id ORDER BY request_ns DESC, sent_ns, replied_ns)
           AS by_request,
         MAX(answer_ns) OVER (PARTITION BY capture, connection_id) AS longest_answer_ns,
         MAX(request_ns) OVER (PARTITION BY capture, connection_id) AS longest_request_ns,
         SUM(answer_ns) OVER (PARTITION BY capture, connection_id) AS answers_ns,
         SUM(request_ns) OVER (PARTITION BY capture, connection_id) AS requests_ns
  FROM timed
),
slowest AS (
  SELECT capture, connection_id, sent_ns AS slowest_sent_ns, replied_ns AS slowest_replied_ns
  FROM compared WHERE by_answer = 1
),
closed AS (
  SELECT t.*,
         CASE WHEN c.closed_window_ns_s2c <= t.longest_answer_ns THEN LEAST(c.closed_window_ns_s2c, t.answer_ns, GREATEST(
                LEAST(t.replied_ns, s.slowest_replied_ns) - GREATEST(t.sent_ns, s.slowest_sent_ns), 0))
              ELSE t.answer_ns * LEAST(1e0, c.closed_window_ns_s2c / GREATEST(t.answers_ns, 1e0)) END AS client_closed_ns,
         CASE WHEN c.closed_window_ns_c2s > t.longest_request_ns
              THEN t.request_ns * LEAST(1e0, c.closed_window_ns_c2s / GREATEST(t.requests_ns, 1e0))
              WHEN t.by_request = 1 THEN c.closed_window_ns_c2s ELSE 0 END AS broker_closed_ns
  FROM compared t
  JOIN slowest s ON s.capture = t.capture AND s.connection_id = t.connection_id
  JOIN connections c ON c.capture = t.capture AND c.connection_id = t.connection_id
),
ranked AS (
  SELECT *,
         COUNT(*) OVER (PARTITION BY protocol, server_ip, server_port, client_ip) - 1 AS last_place,
         COUNT(thinking_ns) OVER (PARTITION BY protocol, server_ip, server_port, client_ip) - 1 AS last_thinking,
         ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, client_ip ORDER BY sending_ns) - 1 AS by_sending,
         ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, client_ip ORDER BY waiting_ns) - 1 AS by_waiting,
         ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, client_ip ORDER BY receiving_ns) - 1
           AS by_receiving,
         ROW_NUMBER() OVER (PARTITION BY protocol, server_ip, server_port, client_ip ORDER BY thinking_ns NULLS LAST) - 1
           AS by_thinking
  FROM closed
),
sums AS (
  SELECT protocol, server_ip, server_port, client_ip, COUNT(*) AS exchanges,
         COUNT(CASE WHEN state = 'likely' THEN 1 END) AS likely,
         SUM(sending_ns * GREATEST(0e0, 1 - ABS(by_sending - 0.5e0 * last_place))) / 1000 AS sending_p50_us,
         SUM(sending_ns * GREATEST(0e0, 1 - ABS(by_sending - 0.99e0 * last_place))) / 1000 AS sending_p99_us,
         SUM(waiting_ns * GREATEST(0e0, 1 - ABS(by_waiting - 0.5e0 * last_place))) / 1000 AS waiting_p50_us,
         SUM(waiting_ns * GREATEST(0e0, 1 - ABS(by_waiting - 0.99e0 * last_place))) / 1000 AS waiting_p99_us,
         SUM(receiving_ns * GREATEST(0e0, 1 - ABS(by_receiving - 0.5e0 * last_place))) / 1000 AS receiving_p50_us,
         SUM(receiving_ns * GREATEST(0e0, 1 - ABS(by_receiving - 0.99e0 * last_place))) / 1000 AS receiving_p99_us,
         SUM(thinking_ns * GREATEST(0e0, 1 - ABS(by_thinking - 0.5e0 * last_thinking))) / 1000 AS thinking_p50_us,
         SUM(thinking_ns * GREATEST(0e0, 1 - ABS(by_thinking - 0.99e0 * last_thinking))) / 1000 AS thinking_p99_us,
         MIN(NULLIF(waiting_ns, 0)) / 1000e0 AS rtt_at_most_us,
         SUM(sending_ns + receiving_ns - LEAST(sending_ns, broker_closed_ns) - LEAST(receiving_ns, client_closed_ns))
           / 1000e0 AS transfer_us,
         SUM(waiting_ns + broker_closed_ns - GREATEST(client_closed_ns - receiving_ns, 0)) / 1000e0 AS broker_us,
         SUM(COALESCE(thinking_ns, 0) + client_closed_ns - GREATEST(broker_closed_ns - sending_ns, 0)) / 1000e0
           AS client_us
  FROM ranked
  GROUP BY protocol, server_ip, server_port, client_ip
),
lines AS (
  SELECT server_ip, server_port, client_ip,
         SUM(retransmitted_bytes_c2s + retransmitted_bytes_s2c) AS retransmitted_bytes,
         SUM(missing_bytes_c2s + missing_bytes_s2c) AS missing_bytes
  FROM connections GROUP BY server_ip, server_port, client_ip
)
SELECT s.*, l.retransmitted_bytes, l.missing_bytes,
       CASE WHEN s.client_us >= s.broker_us AND s.client_us >= s.transfer_us THEN 'client'
            WHEN s.broker_us >= s.transfer_us THEN 'broker' ELSE 'transfer' END AS mostly
FROM sums s
LEFT JOIN lines l ON l.server_ip = s.server_ip AND l.server_port = s.server_port AND l.client_ip = s.client_ip
ORDER BY s.protocol NULLS LAST, s.server_ip NULLS LAST, s.server_port NULLS LAST, s.client_ip NULLS LAST
