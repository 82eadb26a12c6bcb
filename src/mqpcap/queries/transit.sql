-- How long does a message take from publish to delivery through the broker?
--
-- A row per protocol, destination and how (the evidence): deliveries, published (distinct messages among them), min_us,
-- p50_us, p95_us, p99_us, p999_us, max_us. With brokers that push this is the broker's time; with brokers that are
-- polled it contains the consumer's delay. Deliveries are those with proof; none is only likely.
WITH ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY protocol, destination, how ORDER BY latency_ns NULLS LAST) - 1 AS place,
         COUNT(latency_ns) OVER (PARTITION BY protocol, destination, how) - 1 AS last_place,
         ROW_NUMBER() OVER (PARTITION BY protocol, destination, how, capture, publish_connection_id, publish_offset
                            ORDER BY deliver_ts_ns, deliver_connection_id, deliver_offset) AS copy
  FROM deliveries
)
SELECT protocol, destination, how, COUNT(*) AS deliveries, COUNT(CASE WHEN copy = 1 THEN 1 END) AS published,
       MIN(latency_ns) / 1000e0 AS min_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.5e0 * last_place))) / 1000 AS p50_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.95e0 * last_place))) / 1000 AS p95_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.99e0 * last_place))) / 1000 AS p99_us,
       SUM(latency_ns * GREATEST(0e0, 1 - ABS(place - 0.999e0 * last_place))) / 1000 AS p999_us,
       MAX(latency_ns) / 1000e0 AS max_us
FROM ranked
GROUP BY protocol, destination, how
ORDER BY protocol NULLS LAST, destination NULLS LAST, how NULLS LAST
