-- Which single requests took longest, and which packets prove it?
--
-- Parameter: n (10).
-- A row per exchange, slowest first, with the lengths of both messages in bytes, their packets as Wireshark numbers
-- them in capture_file, those of the reply in reply_file if that is another, and their keys. state is likely where no
-- evidence proves the pair.
SELECT e.protocol, e.op, e.destination, e.client_name, e.latency_ns / 1000e0 AS latency_us, e.state, e.status,
       e.error_code, q.frame_len AS request_len, q.body_len AS request_body_len, a.frame_len AS reply_len,
       a.body_len AS reply_body_len, q.capture_file, q.first_packet AS request_first_packet,
       q.last_packet AS request_last_packet, NULLIF(a.capture_file, q.capture_file) AS reply_file,
       a.first_packet AS reply_first_packet, a.last_packet AS reply_last_packet,
       e.capture, e.connection_id, e.request_offset, e.reply_offset, e.request_ts_ns, e.reply_ts_ns
FROM exchanges e
JOIN messages q ON q.capture = e.capture AND q.connection_id = e.connection_id AND q.direction = e.request_direction
               AND q.stream_offset = e.request_offset
JOIN messages a ON a.capture = e.capture AND a.connection_id = e.connection_id AND a.stream_offset = e.reply_offset
               AND a.direction <> q.direction
WHERE e.latency_ns IS NOT NULL
ORDER BY e.latency_ns DESC NULLS LAST, e.request_ts_ns NULLS LAST, e.capture NULLS LAST, e.connection_id NULLS LAST,
         e.request_offset NULLS LAST
LIMIT :n
