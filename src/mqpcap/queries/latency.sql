-- How long does an operation take until it is answered?
--
-- A row per protocol and op: requests, those of each state, errors among the answers, and p50_us, p95_us, p99_us,
-- p999_us, max_us from the request's first byte to the answer's first byte; how long the rest of a long answer takes is
-- receiving in where_the_time_goes. Percentiles are exact, between two values linear; likely counts the latencies of
-- pairs that no evidence proves. An operation that is only answered when it is refused has the latency of refusals.
WITH ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, op ORDER BY latency_ns NULLS LAST) - 1 AS place,
         COUNT(latency_ns) OVER (PARTITION BY protocol, op) - 1 AS last_place
  FROM exchanges
)
SELECT protocol, op, COUNT(request_ts_ns) AS requests,
       COUNT(CASE WHEN state = 'answered' THEN 1 END) AS answered,
       COUNT(CASE WHEN state = 'likely' THEN 1 END) AS likely,
       COUNT(CASE WHEN state = 'silent' THEN 1 END) AS silent,
       COUNT(CASE WHEN state = 'not_expected' THEN 1 END) AS not_expected,
       COUNT(CASE WHEN state = 'unanswered' THEN 1 END) AS unanswered,
       COUNT(CASE WHEN state = 'lost' THEN 1 END) AS lost,
       COUNT(CASE WHEN state = 'unknown' THEN 1 END) AS unknown,
       COUNT(CASE WHEN status = 'error' THEN 1 END) AS errors,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.5e0 * last_place))) / 1000 AS p50_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.95e0 * last_place))) / 1000 AS p95_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.99e0 * last_place))) / 1000 AS p99_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.999e0 * last_place))) / 1000 AS p999_us,
       MAX(latency_ns) / 1000e0 AS max_us
FROM ranked
GROUP BY protocol, op
ORDER BY protocol NULLS LAST, op NULLS LAST
