"""The tables to answers: fifteen questions asked of a capture, each a function of DataFrames.

A function takes tables of the contract as DataFrames, however they were read (``spark.read.format("mqpcap")`` or the
Parquet of an export), and returns a DataFrame. Each is one statement of Spark SQL, shown at the end of its docstring
and kept beside it as a constant: over views with the names of the tables, and with the named parameters given, it can
be run as it stands. Nothing but SQL is used, so everything works on Spark Connect; nothing is collected.

To ask about a part, filter before: ``latency(exchanges.where("destination = 'orders'"))``. A protocol's own table is
optional wherever it is named, since an export has it only if the protocol occurs; without it, what only that
table tells is missing from the answer.

Times are ``_ns`` since 1970 or, for durations, ``_us`` or ``_s``. Percentiles are exact, interpolated between
neighbours. Where the capture does not tell, columns are null: no answer is a guess.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark.sql import DataFrame

Answer = TypeVar("Answer", bound=Callable[..., DataFrame])

NS_PER_S = 1_000_000_000

_BLIPMQ = {
    "connection_id": "BIGINT", "direction": "STRING", "stream_offset": "BIGINT", "ts_ns": "BIGINT", "op": "STRING",
    "correlation_id": "DECIMAL(20,0)", "subscription_id": "DECIMAL(20,0)", "delivery_tag": "DECIMAL(20,0)",
    "qos": "INT", "topic": "STRING",
}  # fmt: skip
_FLYMQ = {
    "connection_id": "BIGINT", "direction": "STRING", "stream_offset": "BIGINT", "ts_ns": "BIGINT", "op": "STRING",
    "flags": "INT", "topic": "STRING", "partition": "INT", "offset": "DECIMAL(20,0)", "group_id": "STRING",
    "mode": "STRING", "next_offset": "DECIMAL(20,0)", "committed_offset": "DECIMAL(20,0)",
    "latest_offset": "DECIMAL(20,0)", "lag": "DECIMAL(20,0)",
    "records": "ARRAY<STRUCT<offset: DECIMAL(20,0), key: BINARY, value: BINARY>>",
}  # fmt: skip
_FQ = {
    "connection_id": "BIGINT", "direction": "STRING", "stream_offset": "BIGINT", "ts_ns": "BIGINT", "op": "STRING",
    "exchange": "STRING", "message_id": "BINARY", "sender": "STRING",
}  # fmt: skip
_MSGQ = {
    "connection_id": "BIGINT", "direction": "STRING", "stream_offset": "BIGINT", "ts_ns": "BIGINT", "op": "STRING",
    "from": "STRING", "group": "STRING", "seq": "STRING", "msg": "STRING",
}  # fmt: skip

_ROLES = """\
roles AS (
  SELECT * FROM VALUES
    ('fq', 'c2s', 'message', 'producer'), ('fq', 'c2s', 'bind_request', 'consumer'),
    ('fq', 's2c', 'message', 'consumer'),
    ('kokaq', 'c2s', 'Push', 'producer'), ('kokaq', 'c2s', 'Pop', 'consumer'), ('kokaq', 's2c', 'Pop', 'consumer'),
    ('kokaq', 'c2s', 'Peek', 'consumer'), ('kokaq', 's2c', 'Peek', 'consumer'),
    ('kokaq', 'c2s', 'AcquirePeekLock', 'consumer'), ('kokaq', 'c2s', 'ReleasePeekLock', 'consumer'),
    ('flymq', 'c2s', 'PRODUCE', 'producer'), ('flymq', 'c2s', 'PRODUCE_WITH_SCHEMA', 'producer'),
    ('flymq', 'c2s', 'PRODUCE_DELAYED', 'producer'), ('flymq', 'c2s', 'PRODUCE_WITH_TTL', 'producer'),
    ('flymq', 'c2s', 'TXN_PRODUCE', 'producer'), ('flymq', 'c2s', 'SUBSCRIBE', 'consumer'),
    ('flymq', 'c2s', 'COMMIT', 'consumer'),
    ('flymq', 'c2s', 'CONSUME', 'consumer'), ('flymq', 's2c', 'CONSUME', 'consumer'),
    ('flymq', 'c2s', 'CONSUME_ZERO_COPY', 'consumer'), ('flymq', 's2c', 'CONSUME_ZERO_COPY', 'consumer'),
    ('flymq', 'c2s', 'FETCH', 'consumer'), ('flymq', 's2c', 'FETCH', 'consumer'),
    ('flymq', 'c2s', 'FETCH_BINARY', 'consumer'), ('flymq', 's2c', 'FETCH_BINARY', 'consumer'),
    ('blipmq', 'c2s', 'PUBLISH', 'producer'), ('blipmq', 'c2s', 'SUBSCRIBE', 'consumer'),
    ('blipmq', 's2c', 'PUBLISH', 'consumer'), ('blipmq', 's2c', 'DELIVER', 'consumer'),
    ('msgq', 'c2s', 'send', 'producer'), ('msgq', 'c2s', 'subscribe', 'consumer'), ('msgq', 's2c', 'send', 'consumer')
    AS r(protocol, direction, op, role)
)"""


def _shown(sql: str) -> Callable[[Answer], Answer]:
    """Append the statement to the docstring of the function that runs it."""

    def shown(answer: Answer) -> Answer:
        lines = "".join(f"        {line}\n" if line else "\n" for line in sql.strip().splitlines())
        answer.__doc__ = f"{answer.__doc__ or ''}\n    SQL::\n\n{lines}    "
        return answer

    return shown


def _rows(sql: str, tables: Mapping[str, DataFrame], args: Mapping[str, object] | None = None) -> DataFrame:
    """The rows of the statement, its table names standing for the DataFrames."""
    named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in tables)
    body = sql.strip()
    rest = f", {body.removeprefix('WITH ')}" if body.startswith("WITH ") else f" {body}"
    session = next(iter(tables.values())).sparkSession
    return session.sql(f"WITH {named}{rest}", args=dict(args or {}), **tables)


def _or_none(table: DataFrame | None, columns: Mapping[str, str], beside: DataFrame) -> DataFrame:
    """The table, or one without rows in its place."""
    if table is not None:
        return table
    cells = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in columns.items())
    return beside.sparkSession.sql(f"SELECT {cells} LIMIT 0")


def _moment(when: datetime.datetime | str) -> str:
    """A moment in UTC as text that Spark reads the same in every session time zone."""
    at = datetime.datetime.fromisoformat(when) if isinstance(when, str) else when
    aware = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
    return aware.astimezone(datetime.UTC).isoformat()


WHO_TALKS = f"""
WITH {_ROLES},
logins AS (
  -- FlyMQ names the user when it grants a login; a msgq client names itself in what it sends.
  SELECT connection_id, stream_offset, direction, op,
         LAST_VALUE(IF(protocol = 'flymq' AND op = 'AUTH_RESPONSE' AND status = 'ok', client_name, NULL), TRUE)
           OVER (PARTITION BY connection_id ORDER BY ts_ns, stream_offset) AS user,
         MAX(IF(protocol = 'msgq' AND direction = 'c2s' AND op = 'send', client_name, NULL))
           OVER (PARTITION BY connection_id) AS sender
  FROM messages WHERE protocol IN ('flymq', 'msgq')
)
SELECT m.protocol,
       IF(m.direction = 'c2s', m.dst_ip, m.src_ip) AS server_ip,
       IF(m.direction = 'c2s', m.dst_port, m.src_port) AS server_port,
       IF(m.direction = 'c2s', m.src_ip, m.dst_ip) AS client_ip,
       CASE m.protocol WHEN 'flymq' THEN l.user WHEN 'msgq' THEN l.sender
                       ELSE COALESCE(m.client_name, e.client_name) END AS client_name,
       r.role,
       COALESCE(m.destination, e.destination) AS destination,
       ARRAY_SORT(COLLECT_SET(m.group_name)) AS group_names,
       COUNT_IF(m.direction = 'c2s') AS requests,
       SUM(CASE WHEN r.role = 'producer' THEN 1 WHEN m.direction = 'c2s' THEN 0
                WHEN m.body_len IS NULL AND m.protocol IN ('kokaq', 'flymq') THEN 0
                WHEN f.records IS NOT NULL THEN SIZE(f.records) ELSE 1 END) AS messages,
       SUM(IF(r.role = 'producer' OR m.direction = 's2c', COALESCE(m.body_len, 0), 0)) AS body_bytes,
       MIN(m.ts_ns) AS first_ts_ns,
       MAX(m.ts_ns) AS last_ts_ns
FROM messages m
JOIN roles r ON r.protocol = m.protocol AND r.direction = m.direction AND r.op = m.op
LEFT JOIN exchanges e ON m.direction = 's2c' AND e.connection_id = m.connection_id AND e.reply_offset = m.stream_offset
LEFT JOIN flymq f
  ON f.connection_id = m.connection_id AND f.direction = m.direction AND f.stream_offset = m.stream_offset
LEFT JOIN logins l
  ON l.connection_id = m.connection_id AND l.direction = m.direction AND l.stream_offset = m.stream_offset
WHERE m.flaw IS NULL
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY protocol, server_ip, server_port, destination, role, client_ip, client_name
"""


@_shown(WHO_TALKS)
def who_talks(messages: DataFrame, exchanges: DataFrame, flymq: DataFrame | None = None) -> DataFrame:
    """Question 1: who talks to which topic or queue, as producer or consumer.

    A row per protocol, server_ip, server_port, client_ip, client_name, role (``producer`` or ``consumer``) and
    destination, with

    * ``group_names``: the groups (FlyMQ, BlipMQ 2) or queues (fq) it named, sorted
    * ``requests``: operations it sent: publishes, or binds, subscriptions, polls, commits
    * ``messages``: messages it sent, refused ones too, or was sent; a FETCH reply counts its records (1 without
      ``flymq``)
    * ``body_bytes``: their payload
    * ``first_ts_ns``, ``last_ts_ns``

    Consumers are: fq, who binds or is sent messages; kokaq, who pops, peeks or locks; FlyMQ, who subscribes, commits,
    consumes or fetches; BlipMQ, who subscribes or is sent messages; msgq, who subscribes or is sent messages. A reply
    that names no destination has that of its request (``exchanges``), null if that is not known. ``client_name`` is
    that of ``messages``, except: FlyMQ, the user of the last granted login; msgq, the name under which the connection
    sends. Messages with a flaw are left out.
    """
    tables = {"messages": messages, "exchanges": exchanges, "flymq": _or_none(flymq, _FLYMQ, messages)}
    return _rows(WHO_TALKS, tables)


RATES = f"""
WITH {_ROLES},
carried AS (
  SELECT m.protocol, COALESCE(m.destination, e.destination) AS destination,
         IF(r.role = 'producer', 'in', 'out') AS flow, m.ts_ns, COALESCE(m.body_len, 0) AS body_len,
         IF(f.records IS NULL OR r.role = 'producer', 1, SIZE(f.records)) AS message_count
  FROM messages m
  JOIN roles r ON r.protocol = m.protocol AND r.direction = m.direction AND r.op = m.op
  LEFT JOIN exchanges e
    ON m.direction = 's2c' AND e.connection_id = m.connection_id AND e.reply_offset = m.stream_offset
  LEFT JOIN flymq f
    ON f.connection_id = m.connection_id AND f.direction = m.direction AND f.stream_offset = m.stream_offset
  WHERE m.flaw IS NULL AND (r.role = 'producer'
    OR (m.direction = 's2c' AND (m.body_len IS NOT NULL OR m.protocol NOT IN ('kokaq', 'flymq'))))
),
busiest AS (
  SELECT protocol, destination, SUM(message_count) AS total FROM carried
  GROUP BY protocol, destination ORDER BY total DESC, protocol, destination LIMIT :top
)
SELECT c.protocol, c.destination, c.flow,
       TIMESTAMP_MICROS(c.ts_ns DIV :window_ns * :window_ns DIV 1000) AS window_start,
       SUM(c.message_count) AS messages,
       SUM(c.body_len) AS body_bytes,
       SUM(c.message_count) * 1e9D / :window_ns AS messages_per_s,
       SUM(c.body_len) * 1e9D / :window_ns AS body_bytes_per_s
FROM carried c JOIN busiest b ON b.protocol = c.protocol AND b.destination <=> c.destination
GROUP BY 1, 2, 3, 4
ORDER BY protocol, destination, flow, window_start
"""


@_shown(RATES)
def rates(
    messages: DataFrame, exchanges: DataFrame, flymq: DataFrame | None = None, window_s: float = 1.0, top: int = 10
) -> DataFrame:
    """Question 2: messages and bytes per topic and second, of the ``top`` destinations with most messages.

    A row per protocol, destination, flow (``in``: sent to the broker, ``out``: sent by it) and ``window_start``
    (timestamp, a multiple of ``window_s`` since 1970) in which there were any, with ``messages``, ``body_bytes``,
    ``messages_per_s``, ``body_bytes_per_s``.

    Counts what carries user messages: publishes, refused ones too, and deliveries; a FlyMQ FETCH reply counts its
    records (1 without ``flymq``). kokaq peeks count as ``out`` like pops. ``body_bytes`` of the FlyMQ operations
    whose payload is no ``value`` (PRODUCE_DELAYED, PRODUCE_WITH_TTL, PRODUCE_WITH_SCHEMA, TXN_PRODUCE) is 0.
    """
    tables = {"messages": messages, "exchanges": exchanges, "flymq": _or_none(flymq, _FLYMQ, messages)}
    return _rows(RATES, tables, {"window_ns": round(window_s * NS_PER_S), "top": top})


LATENCY = """
SELECT protocol, op,
       COUNT(request_ts_ns) AS requests,
       COUNT_IF(state = 'answered') AS answered,
       COUNT_IF(state = 'silent') AS silent,
       COUNT_IF(state = 'not_expected') AS not_expected,
       COUNT_IF(state = 'unanswered') AS unanswered,
       COUNT_IF(state = 'lost') AS lost,
       COUNT_IF(state = 'unknown') AS unknown,
       COUNT_IF(status = 'error') AS errors,
       PERCENTILE(latency_ns, 0.5) / 1000 AS p50_us,
       PERCENTILE(latency_ns, 0.95) / 1000 AS p95_us,
       PERCENTILE(latency_ns, 0.99) / 1000 AS p99_us,
       PERCENTILE(latency_ns, 0.999) / 1000 AS p999_us,
       MAX(latency_ns) / 1000 AS max_us
FROM exchanges
GROUP BY protocol, op
ORDER BY protocol, op
"""


@_shown(LATENCY)
def latency(exchanges: DataFrame) -> DataFrame:
    """Question 3: how long an operation takes until it is answered.

    A row per protocol and op, with counts of ``requests`` and of each state (``answered`` ``silent`` ``not_expected``
    ``unanswered`` ``lost`` ``unknown``, and orphans in none), ``errors`` among the answers, and
    ``p50_us`` ``p95_us`` ``p99_us`` ``p999_us`` ``max_us`` (from the request's first byte to the answer's), null where
    nothing was answered.

    fq ``message`` and, unless refused, BlipMQ ``PUBLISH`` have no answer by design: their rows count ``not_expected``
    and ``silent``, and the BlipMQ latency is that of refusals. In msgq the answer is another client's.
    """
    return _rows(LATENCY, {"exchanges": exchanges})


SLOWEST = """
SELECT e.protocol, e.op, e.destination, e.client_name,
       e.latency_ns / 1000 AS latency_us,
       e.status, e.error_code,
       q.frame_len AS request_len, q.body_len AS request_body_len,
       a.frame_len AS reply_len, a.body_len AS reply_body_len,
       q.capture_file, q.first_packet AS request_first_packet, q.last_packet AS request_last_packet,
       a.first_packet AS reply_first_packet, a.last_packet AS reply_last_packet,
       e.connection_id, e.request_offset, e.reply_offset, e.request_ts_ns, e.reply_ts_ns
FROM exchanges e
JOIN messages q ON q.connection_id = e.connection_id AND q.direction = e.request_direction
               AND q.stream_offset = e.request_offset
JOIN messages a ON a.connection_id = e.connection_id AND a.direction <> e.request_direction
               AND a.stream_offset = e.reply_offset
WHERE e.latency_ns IS NOT NULL
ORDER BY e.latency_ns DESC, e.request_ts_ns, e.connection_id, e.request_offset
LIMIT :n
"""


@_shown(SLOWEST)
def slowest(exchanges: DataFrame, messages: DataFrame, n: int = 10) -> DataFrame:
    """Question 4: the ``n`` single requests that took longest, and the packets that prove it.

    A row per exchange, slowest first: protocol, op, destination, client_name, ``latency_us``, status, error_code;
    lengths in bytes: ``request_len`` ``request_body_len`` ``reply_len`` ``reply_body_len``; where it is:
    ``capture_file`` and, as Wireshark numbers packets, ``request_first_packet`` ``request_last_packet``
    ``reply_first_packet`` ``reply_last_packet``; ``request_ts_ns`` ``reply_ts_ns``; and the keys of both messages:
    connection_id, ``request_offset``, ``reply_offset``, by which the protocol's table has their payload.

    Only what pairs: never fq messages, nor what was answered by silence.
    """
    return _rows(SLOWEST, {"exchanges": exchanges, "messages": messages}, {"n": n})


WHERE_THE_TIME_GOES = """
WITH parts AS (
  SELECT e.protocol, e.connection_id, q.dst_ip AS server_ip, q.dst_port AS server_port, q.src_ip AS client_ip,
         q.end_ts_ns - q.ts_ns AS sending_ns,
         GREATEST(a.ts_ns - q.end_ts_ns, 0) AS waiting_ns,
         a.end_ts_ns - a.ts_ns AS receiving_ns,
         q.ts_ns - LAG(a.end_ts_ns) OVER (PARTITION BY e.connection_id ORDER BY e.request_offset) AS thinking_ns
  FROM exchanges e
  JOIN messages q ON q.connection_id = e.connection_id AND q.direction = e.request_direction
                 AND q.stream_offset = e.request_offset
  JOIN messages a ON a.connection_id = e.connection_id AND a.direction <> e.request_direction
                 AND a.stream_offset = e.reply_offset
),
lines AS (
  SELECT server_ip, server_port, client_ip,
         SUM(retransmitted_bytes_c2s + retransmitted_bytes_s2c) AS retransmitted_bytes,
         SUM(missing_bytes_c2s + missing_bytes_s2c) AS missing_bytes
  FROM connections GROUP BY server_ip, server_port, client_ip
),
sums AS (
  SELECT protocol, server_ip, server_port, client_ip, COUNT(*) AS exchanges,
         PERCENTILE(sending_ns, 0.5) / 1000 AS sending_p50_us, PERCENTILE(sending_ns, 0.99) / 1000 AS sending_p99_us,
         PERCENTILE(waiting_ns, 0.5) / 1000 AS waiting_p50_us, PERCENTILE(waiting_ns, 0.99) / 1000 AS waiting_p99_us,
         PERCENTILE(receiving_ns, 0.5) / 1000 AS receiving_p50_us,
         PERCENTILE(receiving_ns, 0.99) / 1000 AS receiving_p99_us,
         PERCENTILE(IF(thinking_ns >= 0, thinking_ns, NULL), 0.5) / 1000 AS thinking_p50_us,
         PERCENTILE(IF(thinking_ns >= 0, thinking_ns, NULL), 0.99) / 1000 AS thinking_p99_us,
         MIN(NULLIF(waiting_ns, 0)) / 1000 AS rtt_at_most_us,
         SUM(sending_ns + receiving_ns) / 1000 AS transfer_us,
         SUM(waiting_ns) / 1000 AS broker_us,
         SUM(IF(thinking_ns >= 0, thinking_ns, 0)) / 1000 AS client_us
  FROM parts GROUP BY protocol, server_ip, server_port, client_ip
)
SELECT s.protocol, s.server_ip, s.server_port, s.client_ip, s.exchanges,
       s.sending_p50_us, s.sending_p99_us, s.waiting_p50_us, s.waiting_p99_us, s.receiving_p50_us, s.receiving_p99_us,
       s.thinking_p50_us, s.thinking_p99_us, s.rtt_at_most_us, s.transfer_us, s.broker_us, s.client_us,
       l.retransmitted_bytes, l.missing_bytes,
       CASE GREATEST(s.client_us, s.broker_us, s.transfer_us)
         WHEN s.client_us THEN 'client' WHEN s.broker_us THEN 'broker' ELSE 'transfer' END AS mostly
FROM sums s
LEFT JOIN lines l ON l.server_ip = s.server_ip AND l.server_port = s.server_port AND l.client_ip = s.client_ip
ORDER BY s.protocol, s.server_ip, s.server_port, s.client_ip
"""


@_shown(WHERE_THE_TIME_GOES)
def where_the_time_goes(exchanges: DataFrame, messages: DataFrame, connections: DataFrame) -> DataFrame:
    """Question 5: is it the network, the broker or the client.

    A row per protocol, server_ip, server_port and client_ip, over its answered ``exchanges``. Each is cut in four, as
    seen where the capture was made, with the percentiles ``_p50_us`` and ``_p99_us``:

    * ``sending``: first to last packet of the request
    * ``waiting``: from there to the first byte of the answer: the broker, and the network between tap and broker
    * ``receiving``: first to last packet of the answer
    * ``thinking``: from the end of the answer before to the request: the client, and the network between tap and
      client; requests sent before the answer before came have none

    ``transfer_us`` (sending and receiving), ``broker_us`` and ``client_us`` are the sums, ``mostly`` names the
    largest. ``rtt_at_most_us`` is the shortest wait: no round trip between tap and broker takes longer than that. The
    round trip itself is not in the tables (they hold no acknowledgements), so it cannot be taken off ``waiting``; a
    network that loses shows in ``retransmitted_bytes`` and ``missing_bytes`` of all connections between the two. In
    msgq ``waiting`` contains the other client; fq has logins, binds and status only.
    """
    tables = {"exchanges": exchanges, "messages": messages, "connections": connections}
    return _rows(WHERE_THE_TIME_GOES, tables)


TRANSIT = """
SELECT protocol, destination, how,
       COUNT(*) AS deliveries,
       COUNT(DISTINCT publish_connection_id, publish_offset) AS published,
       MIN(latency_ns) / 1000 AS min_us,
       PERCENTILE(latency_ns, 0.5) / 1000 AS p50_us,
       PERCENTILE(latency_ns, 0.95) / 1000 AS p95_us,
       PERCENTILE(latency_ns, 0.99) / 1000 AS p99_us,
       PERCENTILE(latency_ns, 0.999) / 1000 AS p999_us,
       MAX(latency_ns) / 1000 AS max_us
FROM deliveries
GROUP BY protocol, destination, how
ORDER BY protocol, destination, how
"""


@_shown(TRANSIT)
def transit(deliveries: DataFrame) -> DataFrame:
    """Question 6: how long from publish to delivery through the broker.

    A row per protocol, destination and ``how`` (the evidence by which both were tied), with ``deliveries``,
    ``published`` (distinct messages among them), and ``min_us`` ``p50_us`` ``p95_us`` ``p99_us`` ``p999_us``
    ``max_us``. A broker that pushes (fq, msgq) is measured; with one that is asked (FlyMQ, BlipMQ) the time
    contains the consumer's own delay before it asks.

    kokaq has no deliveries: a pop carries nothing that names the push.
    """
    return _rows(TRANSIT, {"deliveries": deliveries})


BACKLOG = """
WITH ends AS (
  SELECT DISTINCT connection_id, server_ip, server_port, client_ip, client_port FROM connections
),
asked AS (
  SELECT n.server_ip, n.server_port, n.client_ip, n.client_port, q.op, a.op AS reply_op, e.status,
         COALESCE(q.topic, a.topic, e.destination) AS topic, COALESCE(a.partition, q.partition) AS partition,
         q.group_id, q.mode, q.offset, a.offset AS reply_offset, a.next_offset, a.committed_offset,
         a.latest_offset, a.lag, a.ts_ns
  FROM exchanges e
  JOIN flymq q ON q.connection_id = e.connection_id AND q.direction = 'c2s' AND q.stream_offset = e.request_offset
  JOIN flymq a ON a.connection_id = e.connection_id AND a.direction = 's2c' AND a.stream_offset = e.reply_offset
  JOIN ends n ON n.connection_id = e.connection_id
  WHERE e.protocol = 'flymq' AND e.status = 'ok'
),
produced AS (
  SELECT server_ip, server_port, topic, partition, MAX(reply_offset) + 1 AS position FROM asked
  WHERE op IN ('PRODUCE', 'PRODUCE_WITH_SCHEMA', 'PRODUCE_WITH_TTL')
  GROUP BY server_ip, server_port, topic, partition
),
positions AS (
  SELECT server_ip, server_port, topic, partition, group_id AS consumer, 'commit' AS how,
         MAX_BY(CASE op WHEN 'GET_OFFSET' THEN reply_offset
                        WHEN 'RESET_OFFSET' THEN IF(mode = 'offset', offset, NULL) ELSE offset END, ts_ns) AS position
  FROM asked WHERE op IN ('COMMIT', 'GET_OFFSET', 'RESET_OFFSET')
  GROUP BY server_ip, server_port, topic, partition, group_id
  UNION ALL
  SELECT server_ip, server_port, topic, partition, CONCAT(client_ip, ':', client_port), 'read',
         MAX_BY(CASE WHEN op IN ('FETCH', 'FETCH_BINARY') THEN next_offset ELSE offset + 1 END, ts_ns)
  FROM asked WHERE op IN ('FETCH', 'FETCH_BINARY', 'CONSUME', 'CONSUME_ZERO_COPY')
  GROUP BY server_ip, server_port, topic, partition, client_ip, client_port
),
told AS (
  SELECT connection_id, 'c2s' AS direction, request_offset AS stream_offset, destination, status FROM exchanges
  UNION ALL
  SELECT connection_id, 's2c', reply_offset, destination, status FROM exchanges
),
sent AS (
  -- What fq, BlipMQ and kokaq carried, each message with the status of its exchange.
  SELECT m.protocol, n.server_ip, n.server_port, COALESCE(m.destination, e.destination) AS topic, m.direction,
         m.op, m.ts_ns,
         CASE m.protocol WHEN 'fq' THEN COALESCE(m.group_name, CONCAT(n.client_ip, ':', n.client_port))
                         WHEN 'blipmq' THEN CONCAT(n.client_ip, ':', n.client_port) END AS consumer,
         m.body_len,
         IF(b.qos = 1 AND m.direction = 's2c', COALESCE(b.delivery_tag, b.correlation_id), NULL) AS tag,
         m.stream_offset
  FROM messages m
  JOIN ends n ON n.connection_id = m.connection_id
  LEFT JOIN told e ON e.connection_id = m.connection_id AND e.direction = m.direction
    AND e.stream_offset = m.stream_offset
  LEFT JOIN blipmq b ON b.connection_id = m.connection_id AND b.direction = m.direction
    AND b.stream_offset = m.stream_offset
  WHERE m.protocol IN ('fq', 'blipmq', 'kokaq') AND m.flaw IS NULL
    AND COALESCE(e.status, '') <> 'error' AND COALESCE(m.status, '') <> 'error'
),
wanted AS (
  SELECT protocol, server_ip, server_port, topic, consumer, MIN(ts_ns) AS since_ns FROM sent
  WHERE protocol = 'fq' AND op = 'bind_request' GROUP BY protocol, server_ip, server_port, topic, consumer
  UNION ALL
  SELECT protocol, server_ip, server_port, topic, consumer, ts_ns FROM sent
  WHERE protocol = 'blipmq' AND direction = 'c2s' AND op = 'SUBSCRIBE'
),
offered AS (
  SELECT w.protocol, w.server_ip, w.server_port, w.topic, w.consumer, COUNT(p.ts_ns) AS produced
  FROM wanted w LEFT JOIN sent p
    ON p.protocol = w.protocol AND p.server_ip = w.server_ip AND p.server_port = w.server_port AND p.topic = w.topic
   AND p.direction = 'c2s' AND p.op IN ('message', 'PUBLISH') AND p.ts_ns > w.since_ns
  GROUP BY w.protocol, w.server_ip, w.server_port, w.topic, w.consumer
),
received AS (
  SELECT protocol, server_ip, server_port, topic, consumer,
         COUNT(DISTINCT COALESCE(CAST(tag AS STRING), CONCAT('at ', stream_offset))) AS consumed
  FROM sent WHERE protocol IN ('fq', 'blipmq') AND direction = 's2c' AND op IN ('message', 'PUBLISH', 'DELIVER')
  GROUP BY protocol, server_ip, server_port, topic, consumer
),
balance AS (
  SELECT server_ip, server_port, topic, COUNT_IF(direction = 'c2s' AND op = 'Push') AS produced,
         COUNT_IF(direction = 's2c' AND op = 'Pop' AND body_len IS NOT NULL) AS consumed
  FROM sent WHERE protocol = 'kokaq' AND op IN ('Push', 'Pop') GROUP BY server_ip, server_port, topic
)
SELECT protocol, server_ip, server_port, destination, partition_id, consumer, how,
       CAST(produced AS DECIMAL(20,0)) AS produced, CAST(consumed AS DECIMAL(20,0)) AS consumed,
       TRY_CAST(backlog AS DECIMAL(20,0)) AS backlog
FROM (
  SELECT 'flymq' AS protocol, server_ip, server_port, topic AS destination, partition AS partition_id,
         group_id AS consumer, 'broker' AS how,
         MAX_BY(latest_offset, ts_ns) AS produced, MAX_BY(committed_offset, ts_ns) AS consumed,
         MAX_BY(lag, ts_ns) AS backlog
  FROM asked WHERE op = 'GET_LAG' GROUP BY server_ip, server_port, topic, partition, group_id
  UNION ALL
  SELECT 'flymq', c.server_ip, c.server_port, c.topic, c.partition, c.consumer, c.how,
         p.position, c.position, p.position - c.position
  FROM positions c LEFT JOIN produced p
    ON p.server_ip = c.server_ip AND p.server_port = c.server_port AND p.topic = c.topic AND p.partition = c.partition
  UNION ALL
  SELECT protocol, server_ip, server_port, topic, NULL, consumer, 'counts',
         produced, COALESCE(consumed, 0), IF(produced IS NULL, NULL, produced - COALESCE(consumed, 0))
  FROM offered FULL JOIN received USING (protocol, server_ip, server_port, topic, consumer)
  UNION ALL
  SELECT 'kokaq', server_ip, server_port, topic, NULL, NULL, 'counts', produced, consumed, produced - consumed
  FROM balance
)
ORDER BY protocol, server_ip, server_port, destination, partition_id, consumer, how
"""


@_shown(BACKLOG)
def backlog(
    messages: DataFrame,
    exchanges: DataFrame,
    connections: DataFrame,
    flymq: DataFrame | None = None,
    blipmq: DataFrame | None = None,
) -> DataFrame:
    """Question 7: who falls behind, and by how much.

    A row per protocol, server_ip, server_port, destination, partition_id (FlyMQ), ``consumer`` and ``how``, with
    ``produced``, ``consumed`` and ``backlog`` (decimal, messages; null where the capture does not tell) at its end:

    * FlyMQ ``broker``: the last GET_LAG reply of the group: its own words
    * FlyMQ ``commit``: one more than the highest offset seen produced, less the group's position by the last COMMIT,
      GET_OFFSET or RESET_OFFSET to an offset
    * FlyMQ ``read``: the same less where the client (``ip:port``) stopped reading
    * BlipMQ ``counts``: what was published to the topic since the client (``ip:port``) subscribed, less what it was
      sent, redeliveries (``blipmq``) counted once; what the broker dropped or expired is in the backlog
    * fq ``counts``: the same of a queue since its bind; the bind's program may have passed over part of it, so
      the backlog is at most this
    * kokaq ``counts``: pushes less pops that brought a message; no consumer

    msgq keeps nothing, so it has no backlog.
    """
    tables = {
        "messages": messages, "exchanges": exchanges, "connections": connections,
        "flymq": _or_none(flymq, _FLYMQ, messages), "blipmq": _or_none(blipmq, _BLIPMQ, messages),
    }  # fmt: skip
    return _rows(BACKLOG, tables)


UNANSWERED = """
SELECT protocol, state, op, destination, client_name, connection_id,
       request_direction, request_offset, reply_offset,
       COALESCE(request_ts_ns, reply_ts_ns) AS ts_ns,
       status, error_code
FROM exchanges
WHERE state IN ('unanswered', 'lost', 'orphan')
ORDER BY ts_ns, connection_id, request_offset, reply_offset
"""


@_shown(UNANSWERED)
def unanswered(exchanges: DataFrame) -> DataFrame:
    """Question 8: which requests got no answer, and which answers have no request.

    A row per exchange whose ``state`` is ``unanswered``, ``lost`` (the answer lies in a gap) or ``orphan`` (an answer
    whose request was not captured), by time: protocol, state, op, destination, client_name, the key of the message
    (connection_id, request_direction, ``request_offset`` or ``reply_offset``), ``ts_ns``, and an orphan's status and
    error_code. What needs no answer and what nobody can know (``unknown``) is not here; ``latency`` counts it.
    """
    return _rows(UNANSWERED, {"exchanges": exchanges})


ERRORS = """
WITH failures AS (
  SELECT a.protocol, a.src_ip AS server_ip, a.src_port AS server_port, a.dst_ip AS client_ip,
         COALESCE(e.client_name, NULLIF(a.client_name, '')) AS client_name,
         COALESCE(e.op, a.op) AS op,
         COALESCE(e.destination, a.destination) AS destination, a.error_code, a.error_text, a.ts_ns
  FROM messages a
  LEFT JOIN exchanges e ON e.connection_id = a.connection_id AND e.reply_offset = a.stream_offset
  WHERE a.direction = 's2c' AND a.status = 'error'
  UNION ALL
  SELECT 'msgq', a.src_ip, a.src_port, a.dst_ip, e.client_name, COALESCE(e.op, a.op), a.destination,
         TRY_CAST(GET_JSON_OBJECT(t.msg, '$.result[0]') AS BIGINT), GET_JSON_OBJECT(t.msg, '$.result[1]'), a.ts_ns
  FROM messages a
  JOIN msgq t ON t.connection_id = a.connection_id AND t.direction = a.direction AND t.stream_offset = a.stream_offset
  LEFT JOIN exchanges e ON e.connection_id = a.connection_id AND e.reply_offset = a.stream_offset
  WHERE a.direction = 's2c' AND a.protocol = 'msgq'
    AND TRY_CAST(GET_JSON_OBJECT(t.msg, '$.result[0]') AS BIGINT) <> 0
)
SELECT protocol, server_ip, server_port, client_ip, client_name, op, destination, error_code, error_text,
       COUNT(*) AS errors, MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns
FROM failures
GROUP BY protocol, server_ip, server_port, client_ip, client_name, op, destination, error_code, error_text
ORDER BY errors DESC, protocol, op, error_code, error_text, destination, client_ip, client_name, server_ip, server_port
"""


@_shown(ERRORS)
def errors(messages: DataFrame, exchanges: DataFrame, msgq: DataFrame | None = None) -> DataFrame:
    """Question 9: which errors, how many, per client and operation.

    A row per protocol, server_ip, server_port, client_ip, client_name, op (of the request if known, else of the
    reply), destination, error_code and error_text, most frequent first, with the count ``errors``, ``first_ts_ns`` and
    ``last_ts_ns``.

    fq: errors and refused binds; kokaq: Fail, with its reason as code; FlyMQ: ERROR and ``success`` false; BlipMQ:
    NACK. msgq itself knows no errors; with ``msgq`` those count that clients report as ``{"result": [code, text]}``
    with a code other than 0, where they reach the one who asked.
    """
    tables = {"messages": messages, "exchanges": exchanges, "msgq": _or_none(msgq, _MSGQ, messages)}
    return _rows(ERRORS, tables)


REPEATS = """
WITH only_one AS (
  SELECT connection_id, MIN(subscription_id) AS subscription_id FROM blipmq
  WHERE direction = 'c2s' AND op IN ('POLL', 'ACK') AND subscription_id <> 0
  GROUP BY connection_id HAVING MIN(subscription_id) = MAX(subscription_id)
),
seen AS (
  -- Clients count their ids from 1, so only one sender's tell messages apart.
  SELECT 'fq' AS protocol, IF(direction = 'c2s', 'sent again', 'delivered again') AS kind, connection_id,
         CONCAT_WS(' ', connection_id, direction, sender) AS scope, exchange AS destination,
         LOWER(HEX(message_id)) AS key, ts_ns
  FROM fq WHERE op = 'message' AND message_id IS NOT NULL
  UNION ALL
  SELECT 'msgq', IF(direction = 'c2s', 'sent again', 'delivered again'), connection_id,
         CONCAT_WS(' ', connection_id, direction), `group`, CONCAT(`from`, ':', seq), ts_ns
  FROM msgq WHERE op = 'send' AND `from` IS NOT NULL AND seq IS NOT NULL
  UNION ALL
  -- Its clients may open a connection for each request, so a retry is looked for among all of an address.
  SELECT protocol, 'sent again', connection_id, CONCAT_WS(' ', src_ip, dst_ip, dst_port, op, frame_len), destination,
         correlation_id, ts_ns
  FROM messages WHERE protocol = 'kokaq' AND direction = 'c2s' AND correlation_id IS NOT NULL AND flaw IS NULL
  UNION ALL
  SELECT 'flymq', 'read again', q.connection_id, CAST(q.connection_id AS STRING), q.topic,
         CONCAT(q.partition, ':', r.offset), q.ts_ns
  FROM exchanges e
  JOIN flymq q ON q.connection_id = e.connection_id AND q.direction = 'c2s' AND q.stream_offset = e.request_offset
  JOIN flymq a ON a.connection_id = e.connection_id AND a.direction = 's2c' AND a.stream_offset = e.reply_offset
  LATERAL VIEW EXPLODE(CASE WHEN a.op IN ('CONSUME', 'CONSUME_ZERO_COPY') THEN ARRAY(q.offset)
                            WHEN a.records IS NOT NULL THEN TRANSFORM(a.records, x -> x.offset) END) r AS offset
  WHERE q.op IN ('FETCH', 'FETCH_BINARY', 'CONSUME', 'CONSUME_ZERO_COPY') AND e.status = 'ok'
  UNION ALL
  -- Tags count per subscription of the whole broker; the POLL that was answered names it.
  SELECT 'blipmq', 'delivered again', d.connection_id,
         CONCAT(c.server_ip, ' ', c.server_port, ' ', COALESCE(p.subscription_id, o.subscription_id)), d.topic,
         CAST(COALESCE(d.delivery_tag, d.correlation_id) AS STRING), d.ts_ns
  FROM blipmq d
  JOIN connections c ON c.connection_id = d.connection_id
  LEFT JOIN exchanges e ON e.connection_id = d.connection_id AND e.reply_offset = d.stream_offset AND e.op = 'POLL'
  LEFT JOIN blipmq p ON p.connection_id = e.connection_id AND p.direction = 'c2s' AND p.stream_offset = e.request_offset
  LEFT JOIN only_one o ON o.connection_id = d.connection_id
  WHERE d.direction = 's2c' AND d.op IN ('PUBLISH', 'DELIVER') AND d.qos = 1
    AND COALESCE(p.subscription_id, o.subscription_id) IS NOT NULL
)
SELECT protocol, kind, destination, key, COUNT(*) AS times, MIN_BY(connection_id, ts_ns) AS first_connection_id,
       MAX_BY(connection_id, ts_ns) AS last_connection_id, MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns
FROM seen
GROUP BY protocol, kind, scope, destination, key
HAVING COUNT(*) > 1
UNION ALL
SELECT protocol, 'put back', destination, NULL, COUNT(*), MIN_BY(connection_id, ts_ns), MAX_BY(connection_id, ts_ns),
       MIN(ts_ns), MAX(ts_ns)
FROM messages WHERE protocol = 'kokaq' AND direction = 'c2s' AND op = 'ReleasePeekLock' AND flaw IS NULL
GROUP BY protocol, destination
ORDER BY protocol, kind, first_ts_ns, destination, key
"""


@_shown(REPEATS)
def repeats(
    messages: DataFrame,
    exchanges: DataFrame,
    connections: DataFrame,
    fq: DataFrame | None = None,
    flymq: DataFrame | None = None,
    blipmq: DataFrame | None = None,
    msgq: DataFrame | None = None,
) -> DataFrame:
    """Question 10: what was retried, redelivered or duplicated.

    A row per protocol, ``kind``, destination and ``key`` that came more than once, with ``times``, ``first_ts_ns``,
    ``last_ts_ns`` and the connections of the first and the last (``first_connection_id``, ``last_connection_id``):

    * fq ``sent again``, ``delivered again``: the message id of one sender, on one connection
    * kokaq ``sent again``: opaques, op, destination and length, by one client address; ``put back``: locks released,
      counted per destination, without a key
    * FlyMQ ``read again``: ``partition:offset``, by one connection
    * BlipMQ ``delivered again``: the delivery tag of QoS 1, of one subscription, known by the POLL that was answered,
      or because the connection has but one; left out where neither tells
    * msgq ``sent again``, ``delivered again``: ``from:seq``, on one connection

    All but kokaq need the protocol's table. FlyMQ producers carry no id, so a produce that is retried looks like two.
    Segments that TCP sent again are no repeats: see ``connections``.
    """
    tables = {
        "messages": messages, "exchanges": exchanges, "connections": connections,
        "fq": _or_none(fq, _FQ, messages), "flymq": _or_none(flymq, _FLYMQ, messages),
        "blipmq": _or_none(blipmq, _BLIPMQ, messages), "msgq": _or_none(msgq, _MSGQ, messages),
    }  # fmt: skip
    return _rows(REPEATS, tables)


ACKS = """
WITH clients AS (
  SELECT DISTINCT connection_id, server_ip, server_port, client_ip FROM connections
),
only_one AS (
  SELECT connection_id, MIN(subscription_id) AS subscription_id FROM blipmq
  WHERE direction = 'c2s' AND op IN ('POLL', 'ACK') AND subscription_id <> 0
  GROUP BY connection_id HAVING MIN(subscription_id) = MAX(subscription_id)
),
events AS (
  -- step 1 opens something that wants an acknowledgement, step -1 closes it.
  SELECT 'blipmq' AS protocol, 'delivery' AS kind, d.connection_id, d.topic AS destination,
         CONCAT_WS(' ', d.connection_id, COALESCE(p.subscription_id, o.subscription_id),
                   COALESCE(d.delivery_tag, d.correlation_id)) AS thing,
         1 AS step, d.ts_ns, d.stream_offset
  FROM blipmq d
  LEFT JOIN exchanges e ON e.connection_id = d.connection_id AND e.reply_offset = d.stream_offset AND e.op = 'POLL'
  LEFT JOIN blipmq p ON p.connection_id = e.connection_id AND p.direction = 'c2s' AND p.stream_offset = e.request_offset
  LEFT JOIN only_one o ON o.connection_id = d.connection_id
  WHERE d.direction = 's2c' AND d.op IN ('PUBLISH', 'DELIVER') AND d.qos = 1
  UNION ALL
  SELECT 'blipmq', 'delivery', a.connection_id, NULL,
         CONCAT_WS(' ', a.connection_id, a.subscription_id, a.correlation_id), -1, a.ts_ns, a.stream_offset
  FROM blipmq a
  LEFT JOIN exchanges e ON e.connection_id = a.connection_id AND e.request_offset = a.stream_offset
  WHERE a.direction = 'c2s' AND a.op = 'ACK' AND COALESCE(e.status, '') <> 'error'
  UNION ALL
  SELECT 'kokaq', 'peek lock', m.connection_id, m.destination, CONCAT_WS(' ', m.dst_ip, m.dst_port, m.destination),
         IF(m.op = 'AcquirePeekLock', 1, -1), m.ts_ns, m.stream_offset
  FROM messages m
  LEFT JOIN exchanges e ON e.connection_id = m.connection_id AND e.request_offset = m.stream_offset
  WHERE m.protocol = 'kokaq' AND m.direction = 'c2s' AND m.flaw IS NULL AND COALESCE(e.status, '') <> 'error'
    AND m.op IN ('AcquirePeekLock', 'ReleasePeekLock', 'Pop')
),
followed AS (
  SELECT *, LEAD(step) OVER w AS next_step, LEAD(ts_ns) OVER w AS next_ts_ns
  FROM events WINDOW w AS (PARTITION BY protocol, thing ORDER BY ts_ns, step DESC, stream_offset)
),
pairs AS (
  SELECT protocol, kind, connection_id, destination, thing, ts_ns,
         IF(next_step = -1, next_ts_ns, NULL) AS acked_ts_ns, next_ts_ns
  FROM followed WHERE step = 1
),
open AS (
  SELECT protocol, kind, client_ip, server_ip, server_port, destination, MAX(held) AS most_outstanding
  FROM (
    SELECT s.*, SUM(change) OVER (PARTITION BY protocol, kind, client_ip, server_ip, server_port, destination
                                  ORDER BY at_ns, change ROWS UNBOUNDED PRECEDING) AS held
    FROM (
      SELECT protocol, kind, client_ip, server_ip, server_port, destination, ts_ns AS at_ns, 1 AS change
      FROM pairs JOIN clients USING (connection_id)
      UNION ALL
      SELECT protocol, kind, client_ip, server_ip, server_port, destination, next_ts_ns, -1
      FROM pairs JOIN clients USING (connection_id) WHERE next_ts_ns IS NOT NULL
    ) s
  )
  GROUP BY protocol, kind, client_ip, server_ip, server_port, destination
),
positions AS (
  SELECT q.connection_id, q.topic AS destination, q.partition, q.op, a.ts_ns AS read_ts_ns, q.ts_ns AS asked_ts_ns,
         IF(q.op = 'COMMIT', q.offset, NULL) AS committed,
         CASE WHEN q.op IN ('CONSUME', 'CONSUME_ZERO_COPY') THEN q.offset + 1
              WHEN q.op IN ('FETCH', 'FETCH_BINARY') AND SIZE(a.records) > 0 THEN a.next_offset END AS read_to,
         IF(q.op = 'COMMIT', q.ts_ns, a.ts_ns) AS at_ns
  FROM exchanges e
  JOIN flymq q ON q.connection_id = e.connection_id AND q.direction = 'c2s' AND q.stream_offset = e.request_offset
  JOIN flymq a ON a.connection_id = e.connection_id AND a.direction = 's2c' AND a.stream_offset = e.reply_offset
  WHERE e.protocol = 'flymq' AND e.status = 'ok'
    AND q.op IN ('COMMIT', 'FETCH', 'FETCH_BINARY', 'CONSUME', 'CONSUME_ZERO_COPY')
),
commits AS (
  SELECT connection_id, destination, committed, read_to, at_ns,
         LAST_VALUE(read_to, TRUE) OVER w AS reached,
         LAST_VALUE(IF(read_to IS NULL, NULL, at_ns), TRUE) OVER w AS reached_ns
  FROM positions
  WINDOW w AS (PARTITION BY connection_id, destination, partition ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
)
SELECT p.protocol, p.kind, c.server_ip, c.server_port, c.client_ip, p.destination,
       COUNT(*) AS due,
       COUNT(p.acked_ts_ns) AS acked,
       PERCENTILE(p.acked_ts_ns - p.ts_ns, 0.5) / 1000 AS p50_us,
       PERCENTILE(p.acked_ts_ns - p.ts_ns, 0.95) / 1000 AS p95_us,
       PERCENTILE(p.acked_ts_ns - p.ts_ns, 0.99) / 1000 AS p99_us,
       MAX(p.acked_ts_ns - p.ts_ns) / 1000 AS max_us,
       CAST(MAX(o.most_outstanding) AS DECIMAL(20,0)) AS most_outstanding
FROM pairs p
JOIN clients c ON c.connection_id = p.connection_id
LEFT JOIN open o ON o.protocol = p.protocol AND o.kind = p.kind AND o.client_ip = c.client_ip
  AND o.server_ip = c.server_ip AND o.server_port = c.server_port AND o.destination <=> p.destination
GROUP BY p.protocol, p.kind, c.server_ip, c.server_port, c.client_ip, p.destination
UNION ALL
SELECT 'flymq', 'commit', c.server_ip, c.server_port, c.client_ip, m.destination,
       COUNT(m.read_to), COUNT(m.committed),
       PERCENTILE(IF(m.committed IS NULL, NULL, m.at_ns - m.reached_ns), 0.5) / 1000,
       PERCENTILE(IF(m.committed IS NULL, NULL, m.at_ns - m.reached_ns), 0.95) / 1000,
       PERCENTILE(IF(m.committed IS NULL, NULL, m.at_ns - m.reached_ns), 0.99) / 1000,
       MAX(IF(m.committed IS NULL, NULL, m.at_ns - m.reached_ns)) / 1000,
       TRY_CAST(MAX(m.reached - m.committed) AS DECIMAL(20,0))
FROM commits m JOIN clients c ON c.connection_id = m.connection_id
GROUP BY c.server_ip, c.server_port, c.client_ip, m.destination
ORDER BY protocol, kind, server_ip, server_port, client_ip, destination
"""


@_shown(ACKS)
def acks(
    messages: DataFrame,
    exchanges: DataFrame,
    connections: DataFrame,
    flymq: DataFrame | None = None,
    blipmq: DataFrame | None = None,
) -> DataFrame:
    """Question 11: how late acknowledgements are, and how many are outstanding.

    A row per protocol, ``kind``, server_ip, server_port, client_ip and destination, with ``due``, ``acked``, the time
    between both (``p50_us`` ``p95_us`` ``p99_us`` ``max_us``) and ``most_outstanding``:

    * BlipMQ ``delivery`` (``blipmq``): deliveries of QoS 1, and those acknowledged before they came again; ACKs that
      were refused do not count; most unacknowledged at one time
    * kokaq ``peek lock``: locks taken, and those given back by ReleasePeekLock or Pop of the same queue; most held at
      one time. Refused requests do not count
    * FlyMQ ``commit`` (``flymq``): replies that brought messages, and COMMITs; the time is from the last such reply
      of the partition to the COMMIT on the same connection; most messages read and not covered by a COMMIT when it
      was made

    fq and msgq acknowledge nothing: the heartbeats of fq are in ``churn``.
    """
    tables = {
        "messages": messages, "exchanges": exchanges, "connections": connections,
        "flymq": _or_none(flymq, _FLYMQ, messages), "blipmq": _or_none(blipmq, _BLIPMQ, messages),
    }  # fmt: skip
    return _rows(ACKS, tables)


CHURN = """
WITH beats AS (
  SELECT connection_id, COUNT(*) AS heartbeats, MAX(gap_ns) AS gap_ns
  FROM (
    SELECT connection_id, ts_ns - LAG(ts_ns) OVER (PARTITION BY connection_id ORDER BY ts_ns, stream_offset) AS gap_ns
    FROM messages
    WHERE direction = 'c2s' AND op IN ('heartbeat', 'PING', 'ping', 'Nop', 'NoOp')
  )
  GROUP BY connection_id
),
logins AS (
  SELECT connection_id,
         COUNT_IF(direction = 'c2s' AND op IN ('auth', 'AUTH', 'getlname')) AS logins,
         COUNT_IF(protocol = 'blipmq' AND direction = 's2c' AND error_code = 401 AND error_text = 'invalid API key')
           AS refused_keys,
         COUNT_IF(protocol = 'blipmq' AND direction = 's2c' AND error_code = 426) AS version_mismatches
  FROM messages GROUP BY connection_id
),
refusals AS (
  SELECT connection_id, COUNT(*) AS refused FROM exchanges
  WHERE protocol IN ('fq', 'flymq') AND op IN ('auth', 'AUTH') AND status = 'error' GROUP BY connection_id
),
lives AS (
  SELECT *, MAX(last_ts_ns) OVER (PARTITION BY protocol, server_ip, server_port, client_ip ORDER BY first_ts_ns
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM connections
)
SELECT c.protocol, c.server_ip, c.server_port, c.client_ip,
       COUNT(*) AS connections,
       COUNT_IF(c.first_ts_ns > c.before_ns) AS reconnects,
       COUNT_IF(c.end_state = 'reset') AS reset,
       COUNT_IF(c.end_state = 'closed') AS closed,
       COUNT_IF(c.end_state = 'open') AS still_open,
       PERCENTILE(c.last_ts_ns - c.first_ts_ns, 0.5) / 1e9D AS median_life_s,
       SUM(COALESCE(l.logins, 0)) AS logins,
       SUM(COALESCE(r.refused, 0) + COALESCE(l.refused_keys, 0)) AS failed_logins,
       SUM(COALESCE(l.version_mismatches, 0)) AS version_mismatches,
       SUM(COALESCE(b.heartbeats, 0)) AS heartbeats,
       MAX(b.gap_ns) / 1e9D AS longest_heartbeat_gap_s
FROM lives c
LEFT JOIN logins l ON l.connection_id = c.connection_id
LEFT JOIN refusals r ON r.connection_id = c.connection_id
LEFT JOIN beats b ON b.connection_id = c.connection_id
GROUP BY c.protocol, c.server_ip, c.server_port, c.client_ip
ORDER BY connections DESC, c.protocol, c.server_ip, c.server_port, c.client_ip
"""


@_shown(CHURN)
def churn(connections: DataFrame, messages: DataFrame, exchanges: DataFrame) -> DataFrame:
    """Question 12: who reconnects, fails to log in, speaks another version or stops its heartbeats.

    A row per protocol (null: not ours), server_ip, server_port and client_ip, busiest first, with

    * ``connections``; ``reconnects``: those begun when all before them were over; ``reset`` ``closed``
      ``still_open``: how they ended; ``median_life_s``: first to last packet
    * ``logins``: fq ``auth``, FlyMQ and BlipMQ ``AUTH``, msgq ``getlname``; ``failed_logins``: those refused (fq,
      FlyMQ; BlipMQ a wrong key)
    * ``version_mismatches``: BlipMQ 426
    * ``heartbeats`` of the client (fq ``heartbeat``, BlipMQ ``PING``, msgq ``ping``, kokaq ``Nop``) and
      ``longest_heartbeat_gap_s`` between two of one connection

    An fq client has two connections, command and data. kokaq has no login; only BlipMQ tells versions.
    """
    return _rows(CHURN, {"connections": connections, "messages": messages, "exchanges": exchanges})


POLLING = f"""
WITH {_ROLES},
polls AS (
  SELECT m.protocol, 'poll' AS kind, m.op, COALESCE(m.destination, a.destination) AS destination, m.src_ip AS client_ip,
         CASE WHEN e.state = 'silent' THEN 0
              WHEN e.state IS NULL OR e.state <> 'answered' THEN NULL
              WHEN e.status = 'error' AND m.protocol = 'flymq' AND a.error_text = 'EOF' THEN 0
              WHEN e.status = 'error' THEN NULL
              WHEN f.records IS NOT NULL THEN SIZE(f.records)
              WHEN a.body_len IS NOT NULL THEN 1 ELSE 0 END AS message_count,
         COALESCE(e.status = 'error' AND NOT (m.protocol = 'flymq' AND a.error_text <=> 'EOF'), FALSE) AS refused,
         IF(e.status = 'error', 0, COALESCE(a.body_len, 0)) AS body_len, FALSE AS compressed
  FROM messages m
  LEFT JOIN exchanges e ON e.connection_id = m.connection_id AND e.request_offset = m.stream_offset
  LEFT JOIN messages a ON a.connection_id = e.connection_id AND a.direction = 's2c' AND a.stream_offset = e.reply_offset
  LEFT JOIN flymq f ON f.connection_id = e.connection_id AND f.direction = 's2c' AND f.stream_offset = e.reply_offset
  WHERE m.direction = 'c2s' AND m.flaw IS NULL
    AND ((m.protocol = 'kokaq' AND m.op IN ('Peek', 'Pop')) OR (m.protocol = 'blipmq' AND m.op = 'POLL')
      OR (m.protocol = 'flymq' AND m.op IN ('FETCH', 'FETCH_BINARY', 'CONSUME', 'CONSUME_ZERO_COPY')))
),
publishes AS (
  SELECT m.protocol, 'publish', m.op, m.destination, m.src_ip, 1, COALESCE(e.status = 'error', FALSE),
         COALESCE(m.body_len, 0), COALESCE((f.flags & 14) <> 0, FALSE)
  FROM messages m
  JOIN roles r ON r.protocol = m.protocol AND r.direction = m.direction AND r.op = m.op AND r.role = 'producer'
  LEFT JOIN exchanges e ON e.connection_id = m.connection_id AND e.request_offset = m.stream_offset
  LEFT JOIN flymq f
    ON f.connection_id = m.connection_id AND f.direction = m.direction AND f.stream_offset = m.stream_offset
  WHERE m.flaw IS NULL
)
SELECT protocol, kind, op, destination, client_ip,
       COUNT(*) AS requests,
       COUNT_IF(message_count = 0) AS empty,
       COUNT_IF(refused) AS refused,
       COUNT_IF(message_count IS NULL AND NOT refused) AS unknown,
       COALESCE(SUM(message_count), 0) AS messages,
       AVG(message_count) AS messages_per_request,
       SUM(body_len) AS body_bytes,
       SUM(body_len) / NULLIF(SUM(message_count), 0) AS body_bytes_per_message,
       COUNT_IF(compressed) AS compressed
FROM (SELECT * FROM polls UNION ALL SELECT * FROM publishes)
GROUP BY protocol, kind, op, destination, client_ip
ORDER BY protocol, kind, op, destination, client_ip
"""


@_shown(POLLING)
def polling(messages: DataFrame, exchanges: DataFrame, flymq: DataFrame | None = None) -> DataFrame:
    """Question 13: how wasteful polling and batching are.

    A row per protocol, ``kind`` (``poll`` or ``publish``), op, destination and client_ip, with ``requests``; of polls
    ``empty`` (answered without a message, or by silence), ``refused`` (answered with an error) and ``unknown`` (the
    outcome was not captured); ``messages``, ``messages_per_request`` (over requests of known outcome),
    ``body_bytes``, ``body_bytes_per_message`` and, of publishes, ``compressed`` (``flymq``: the compression bits of
    ``flags``).

    Polls are kokaq Peek and Pop (an empty queue answers Fail, as any refusal does: ``refused``), FlyMQ FETCH and
    CONSUME (EOF is empty) and BlipMQ POLL, whose destination is known only if a message came. fq and msgq push: they
    have publishes only.
    """
    tables = {"messages": messages, "exchanges": exchanges, "flymq": _or_none(flymq, _FLYMQ, messages)}
    return _rows(POLLING, tables)


WHAT_DID = """
WITH theirs AS (
  SELECT DISTINCT connection_id FROM messages
  WHERE :client IN (IF(direction = 'c2s', src_ip, dst_ip),
                    CONCAT(IF(direction = 'c2s', src_ip, dst_ip), ':', IF(direction = 'c2s', src_port, dst_port)))
     OR (client_name = :client AND (protocol IN ('fq', 'kokaq') OR (protocol = 'flymq' AND op = 'AUTH')
                                    OR (protocol = 'msgq' AND direction = 'c2s')))
)
SELECT m.ts, m.ts_ns,
       IF(m.direction = 'c2s', CONCAT(m.src_ip, ':', m.src_port), CONCAT(m.dst_ip, ':', m.dst_port)) AS client,
       IF(m.direction = 'c2s', CONCAT(m.dst_ip, ':', m.dst_port), CONCAT(m.src_ip, ':', m.src_port)) AS server,
       m.direction, m.protocol, m.op, m.destination, m.body_len, m.status, m.error_text, m.flaw,
       CONCAT_WS(' ', DATE_FORMAT(m.ts, 'HH:mm:ss.SSSSSS'), IF(m.direction = 'c2s', '->', '<-'), m.protocol,
                 COALESCE(m.op, CONCAT('op ', m.op_code), '?'), m.destination, CONCAT(m.body_len, ' bytes'), m.status,
                 m.error_code, m.error_text, m.flaw, IF(m.gap_before_bytes > 0,
                 CONCAT('after a gap of ', m.gap_before_bytes, ' bytes'), NULL)) AS line,
       m.capture_file, m.first_packet, m.connection_id, m.stream_offset
FROM messages m JOIN theirs t ON t.connection_id = m.connection_id
WHERE m.ts >= CAST(:start AS TIMESTAMP) AND m.ts < CAST(:end AS TIMESTAMP)
ORDER BY m.ts_ns, m.capture_file, m.first_packet, m.connection_id, m.direction, m.stream_offset
"""


@_shown(WHAT_DID)
def what_did(
    messages: DataFrame, client: str, start: datetime.datetime | str, end: datetime.datetime | str
) -> DataFrame:
    """Question 14: what a client did between two moments, as a sequence to read.

    ``client`` is an address, an ``address:port``, or a name: the user of an fq or FlyMQ login, a kokaq client, a msgq
    ``from``; BlipMQ has no names. Takes all messages of its connections from ``start`` up to, not including, ``end``;
    moments without a zone are UTC. A row per message, by time: ts, ts_ns, ``client`` and ``server``
    (``address:port``), direction, protocol, op, destination, body_len, status, error_text, flaw, ``line`` (all of it
    as text; the time of day in the session's time zone), and where it is: capture_file, first_packet, connection_id,
    stream_offset.
    """
    args = {"client": client, "start": _moment(start), "end": _moment(end)}
    return _rows(WHAT_DID, {"messages": messages}, args)


TRUST = """
WITH decoded AS (
  SELECT connection_id, COUNT(*) AS messages, SUM(frame_len) AS frame_bytes, COUNT_IF(flaw IS NOT NULL) AS flawed,
         COUNT_IF(resynced) AS resynced, COUNT_IF(end_ts_ns < ts_ns OR ts_ns < before_ns) AS backward
  FROM (
    SELECT *, LAG(ts_ns) OVER (PARTITION BY connection_id, direction ORDER BY stream_offset) AS before_ns FROM messages
  )
  GROUP BY connection_id
),
lost AS (
  SELECT connection_id,
         SUM(IF(kind = 'gap', length, 0)) AS gap_bytes,
         SUM(IF(kind = 'undecoded', length, 0)) AS undecoded_bytes,
         SUM(IF(kind = 'undecoded' AND reason = 'tls', length, 0)) AS encrypted_bytes,
         SUM(IF(kind = 'conflict', length, 0)) AS conflict_bytes
  FROM problems GROUP BY connection_id
)
SELECT c.protocol,
       COUNT(*) AS connections,
       COUNT_IF(NOT c.syn_seen) AS begun_before,
       COUNT_IF(c.end_state = 'open') AS not_ended,
       COUNT_IF(c.packets_c2s = 0 OR c.packets_s2c = 0) AS one_sided,
       COUNT_IF(c.identified_by = 'port') AS by_port_only,
       SUM(c.bytes_c2s + c.bytes_s2c) AS bytes,
       SUM(COALESCE(d.frame_bytes, 0)) AS decoded_bytes,
       SUM(COALESCE(d.frame_bytes, 0)) / NULLIF(SUM(c.bytes_c2s + c.bytes_s2c), 0) AS decoded_share,
       SUM(COALESCE(l.undecoded_bytes, 0)) AS undecoded_bytes,
       SUM(COALESCE(l.encrypted_bytes, 0)) AS encrypted_bytes,
       SUM(COALESCE(l.gap_bytes, 0)) AS gap_bytes,
       SUM(COALESCE(l.conflict_bytes, 0)) AS conflict_bytes,
       SUM(c.retransmitted_bytes_c2s + c.retransmitted_bytes_s2c) AS retransmitted_bytes,
       SUM(COALESCE(d.messages, 0)) AS messages,
       SUM(COALESCE(d.flawed, 0)) AS flawed,
       SUM(COALESCE(d.resynced, 0)) AS resynced,
       SUM(COALESCE(d.backward, 0)) AS backward_in_time,
       SUM(COALESCE(l.gap_bytes, 0) + COALESCE(l.undecoded_bytes, 0) + COALESCE(l.conflict_bytes, 0)
           + COALESCE(d.flawed, 0)) = 0
         AND COUNT_IF(NOT c.syn_seen OR c.packets_c2s = 0 OR c.packets_s2c = 0) = 0 AS whole
FROM connections c
LEFT JOIN decoded d ON d.connection_id = c.connection_id
LEFT JOIN lost l ON l.connection_id = c.connection_id
GROUP BY c.protocol
ORDER BY c.protocol
"""


@_shown(TRUST)
def trust(connections: DataFrame, problems: DataFrame, messages: DataFrame) -> DataFrame:
    """Question 15: how far the capture can be trusted.

    A row per protocol (null: what is none of ours) with

    * ``connections``, and of them ``begun_before`` (no SYN captured), ``not_ended``, ``one_sided`` (packets of one
      side only) and ``by_port_only`` (nothing but the port says which protocol)
    * ``bytes`` captured, ``decoded_bytes`` that became messages, their quotient ``decoded_share``;
      ``undecoded_bytes``, of them ``encrypted_bytes``; ``gap_bytes`` never captured (lost, or cut by the snap
      length); ``conflict_bytes`` sent twice with different content; ``retransmitted_bytes``
    * ``messages``, and of them ``flawed``, ``resynced`` (found by a search) and ``backward_in_time`` (captured before
      the message in front of them: a clock set back, or segments out of order)
    * ``whole``: no gap, nothing undecoded, flawed or in conflict, both sides of every connection from its SYN on

    Always ``bytes`` = ``decoded_bytes`` + ``undecoded_bytes``.
    """
    return _rows(TRUST, {"connections": connections, "problems": problems, "messages": messages})
