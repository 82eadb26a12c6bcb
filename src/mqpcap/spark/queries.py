"""The tables to answers: fifteen questions asked of a capture, each a function of DataFrames.

A function takes tables as DataFrames, from ``spark.read.format("mqpcap")`` or from the Parquet of an export, and
returns a DataFrame. Each is one statement of Spark SQL, shown at the end of its docstring and kept beside it as a
constant. The statement runs as it stands, on Spark Connect too. It needs views with the names of the tables, the view
``roles`` (see `roles`), and its named parameters. Nothing is collected.

For a part of the data, filter before: ``latency(exchanges.where("destination = 'orders'"))``. A protocol's own table is
optional, since an export has it only if the protocol occurs. Without it its values are missing: a FETCH reply of FlyMQ
counts its records with ``flymq``, else 1.

The purpose of an operation is its role in the protocol's description (`mqpcap.schema.requests.Roles`). Tables may hold
several captures: nothing is paired across captures, and counts are sums. Times are ``_ns`` since 1970 or, for
durations, ``_us`` or ``_s``. Percentiles are exact. If the capture does not show a value, its column is null: no answer
is a guess.
"""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from mqpcap.protocols import protocols
from mqpcap.schema.protocol import MessageQueue
from mqpcap.spark import schemas

Own: TypeAlias = DataFrame | None
"""A protocol's own table, if the export has it."""

NS_PER_S = 1_000_000_000


def roles(spark: SparkSession) -> DataFrame:
    """What operations and errors are for: a row per protocol, direction, op (or error_text) and role.

    The roles are the fields of `mqpcap.schema.requests.Roles`. Beside them ``reply`` is the reply to a ``poll``,
    ``take`` a poll that is no ``peek``, ``taken`` the reply to one, ``grant`` a reply to a ``login``.
    """
    rows = sorted((name, *row) for name, protocol in protocols().items() for row in _roles(protocol))
    errors = "role IN ('empty', 'denied', 'outdated')"
    return spark.sql(
        f"SELECT protocol, direction, IF({errors}, NULL, name) AS op, IF({errors}, name, NULL) AS error_text, role "
        f"FROM VALUES {', '.join(['(?, ?, ?, ?)'] * len(rows))} AS r(protocol, direction, name, role)",
        args=[cell for row in rows for cell in row],
    )


def _roles(protocol: MessageQueue) -> set[tuple[str, str, str]]:
    declared = protocol.roles
    of_server = ("deliver", "empty", "denied", "outdated")
    rows = {("s2c" if role in of_server else "c2s", op, role) for role, ops in asdict(declared).items() for op in ops}
    rows |= {("s2c", op, "reply") for op in declared.poll}
    rows |= {row for op in declared.poll - declared.peek for row in (("c2s", op, "take"), ("s2c", op, "taken"))}
    asks = protocol.rule.asks if protocol.rule is not None else {}
    return rows | {("s2c", reply, "grant") for op in declared.login if op in asks for reply in asks[op].by}


def _rows(sql: str, args: Mapping[str, object] | None = None, /, **tables: DataFrame | None) -> DataFrame:
    """The rows of the statement, its table names standing for the DataFrames; a table that is None has no rows."""
    session = next(table.sparkSession for table in tables.values() if table is not None)
    views = {name: _without_rows(session, name) if table is None else table for name, table in tables.items()}
    views["roles"] = roles(session)
    common_tables = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in views)
    body = sql.strip()
    statement = f", {body.removeprefix('WITH ')}" if body.startswith("WITH ") else f" {body}"
    return session.sql(f"WITH {common_tables}{statement}", args=dict(args or {}), **views)


def _without_rows(session: SparkSession, table: str) -> DataFrame:
    return session.createDataFrame(schemas.table_schema(table).empty_table())


def _moment(when: datetime.datetime | str) -> str:
    """A moment in UTC as text that Spark reads the same in every session time zone."""
    moment = datetime.datetime.fromisoformat(when) if isinstance(when, str) else when
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return aware.astimezone(datetime.UTC).isoformat()


# What several statements have in common


def _columns(form: str, *names: str) -> str:
    """A column for each name, which stands where the form says {}."""
    return ",\n       ".join(form.replace("{}", name) for name in names)


_OF_STATE = "COUNT_IF(state = '{}') AS {}"
_FILLED = "SUM(COALESCE({}, 0)) AS {}"
_PERCENTILES = _columns("PERCENTILE(latency_ns, 0.{}) / 1000 AS p{}_us", "50", "95", "99", "999")


def _calls(table: str) -> str:
    """Exchanges ``e`` with the rows of a table of their requests ``q`` and their answers ``a``."""
    return f"""exchanges e
  JOIN {table} q ON q.capture = e.capture AND q.connection_id = e.connection_id
                AND q.direction = e.request_direction AND q.stream_offset = e.request_offset
  JOIN {table} a ON a.capture = e.capture AND a.connection_id = e.connection_id
                AND a.direction <> e.request_direction AND a.stream_offset = e.reply_offset"""


_KEY = "(capture, connection_id, direction, stream_offset)"
_TOLD = """told AS (
  -- The exchange of every message that has one, request or reply.
  SELECT e.*, direction, stream_offset
  FROM exchanges e
  LATERAL VIEW STACK(2, e.request_direction, e.request_offset, IF(e.request_direction = 'c2s', 's2c', 'c2s'),
                     e.reply_offset) both_ends AS direction, stream_offset
)"""
_SAID = f"""{_TOLD},
said AS (
  -- Whole messages, what they are for, and their exchange.
  SELECT m.*, r.role, COALESCE(m.destination, e.destination) AS topic, e.client_name AS asked_by, e.state,
         e.reply_offset, COALESCE(e.status, '') = 'error' AS is_refused
  FROM messages m
  JOIN roles r USING (protocol, direction, op)
  LEFT JOIN told e USING {_KEY}
  WHERE m.flaw IS NULL
)"""
_CARRIED = f"""{_SAID},
carried AS (
  -- What gives, brings or asks for messages of users, and how many of them it carries.
  SELECT s.*, CASE WHEN role IN ('publish', 'deliver') THEN 1
                   WHEN role <> 'reply' OR body_len IS NULL THEN 0
                   WHEN f.records IS NOT NULL THEN SIZE(f.records) ELSE 1 END AS message_count
  FROM said s LEFT JOIN flymq f USING {_KEY}
  WHERE role IN ('publish', 'deliver', 'poll', 'reply', 'subscribe', 'ack', 'lock', 'unlock', 'grant')
)"""
_ASKED = f"""asked AS (
  -- What FlyMQ granted, and what it was for; read_to is where a reader goes on.
  SELECT e.capture, e.connection_id, e.server_ip, e.server_port, e.client_ip, e.client_port, r.role, q.op,
         COALESCE(q.topic, a.topic, e.destination) AS topic, COALESCE(a.partition, q.partition) AS partition,
         q.group_id, q.mode, q.offset, a.offset AS reply_offset, a.committed_offset, a.latest_offset, a.lag,
         a.next_offset, a.records, IF(r.role = 'poll', COALESCE(a.next_offset, q.offset + 1), NULL) AS read_to,
         q.ts_ns AS asked_ns, a.ts_ns
  FROM {_calls("flymq")}
  LEFT JOIN roles r ON r.protocol = 'flymq' AND r.direction = q.direction AND r.op = q.op
    AND r.role IN ('publish', 'poll', 'ack', 'position')
  WHERE e.status = 'ok'
)"""
_TAGGED = f"""only_one AS (
  SELECT capture, connection_id, MIN(subscription_id) AS subscription_id FROM blipmq
  WHERE direction = 'c2s' AND subscription_id <> 0
  GROUP BY capture, connection_id HAVING MIN(subscription_id) = MAX(subscription_id)
),
tagged AS (
  -- BlipMQ's deliveries of QoS 1. Tags count per subscription of the whole broker; the POLL that was answered names it.
  SELECT d.*, COALESCE(p.subscription_id, o.subscription_id) AS of_subscription,
         COALESCE(d.delivery_tag, d.correlation_id) AS tag
  FROM blipmq d
  JOIN roles r USING (direction, op)
  LEFT JOIN told e USING {_KEY}
  LEFT JOIN blipmq p ON p.capture = e.capture AND p.connection_id = e.connection_id
    AND p.direction = e.request_direction AND p.stream_offset = e.request_offset
  LEFT JOIN only_one o ON o.capture = d.capture AND o.connection_id = d.connection_id
  WHERE r.protocol = 'blipmq' AND r.role = 'deliver' AND d.qos = 1
)"""


WHO_TALKS = f"""
WITH {_CARRIED},
named AS (
  -- The name under which a connection sends, or logs in elsewhere; not whom it asks about.
  SELECT m.capture, m.connection_id, MAX(m.client_name) AS client_name
  FROM messages m
  LEFT ANTI JOIN roles r ON r.protocol = m.protocol AND r.op = m.op AND r.role IN ('login', 'account')
  WHERE m.direction = 'c2s' GROUP BY m.capture, m.connection_id
),
granted AS (
  SELECT *, LAST_VALUE(IF(role = 'grant' AND status = 'ok', client_name, NULL), TRUE)
              OVER (PARTITION BY capture, connection_id ORDER BY ts_ns, stream_offset) AS user
  FROM carried
)
SELECT protocol,
       IF(direction = 'c2s', dst_ip, src_ip) AS server_ip,
       IF(direction = 'c2s', dst_port, src_port) AS server_port,
       IF(direction = 'c2s', src_ip, dst_ip) AS client_ip,
       COALESCE(IF(direction = 'c2s', g.client_name, NULL), asked_by, user, n.client_name) AS client_name,
       IF(role = 'publish', 'producer', 'consumer') AS role,
       topic AS destination,
       ARRAY_SORT(COLLECT_SET(group_name)) AS group_names,
       COUNT_IF(direction = 'c2s') AS requests,
       SUM(message_count) AS messages,
       SUM(IF(role IN ('publish', 'deliver', 'reply'), COALESCE(body_len, 0), 0)) AS body_bytes,
       MIN(ts_ns) AS first_ts_ns,
       MAX(ts_ns) AS last_ts_ns
FROM granted g
LEFT JOIN named n USING (capture, connection_id)
WHERE role <> 'grant'
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY protocol, server_ip, server_port, destination, role, client_ip, client_name
"""


def who_talks(messages: DataFrame, exchanges: DataFrame, flymq: Own = None) -> DataFrame:
    """Question 1: the producers and consumers of each topic or queue.

    A row per protocol, server_ip, server_port, client_ip, client_name, role (``producer`` or ``consumer``) and
    destination:

    * ``group_names``: groups (FlyMQ, BlipMQ 2) or queues (fq) that the client named
    * ``requests``: its publishes; or its binds, subscriptions, polls and acknowledgements
    * ``messages``: those it sent, also refused messages, or received; their ``body_bytes``
    * ``first_ts_ns``, ``last_ts_ns``

    A message without a destination has the destination of its exchange. ``client_name`` is the name in a message or in
    its request. Else it is the user of the last granted login (FlyMQ), the name under which the connection sends (msgq)
    or the user of its login (fq). Messages with a flaw are left out.
    """
    return _rows(WHO_TALKS, messages=messages, exchanges=exchanges, flymq=flymq)


RATES = f"""
WITH {_CARRIED},
busiest AS (
  SELECT protocol, topic, SUM(message_count) AS total FROM carried WHERE message_count > 0
  GROUP BY protocol, topic ORDER BY total DESC, protocol, topic LIMIT :top
)
SELECT c.protocol, c.topic AS destination,
       IF(c.role = 'publish', 'in', 'out') AS flow,
       TIMESTAMP_MICROS(c.ts_ns DIV :window_ns * :window_ns DIV 1000) AS window_start,
       SUM(c.message_count) AS messages,
       SUM(COALESCE(c.body_len, 0)) AS body_bytes,
       SUM(c.message_count) * 1e9D / :window_ns AS messages_per_s,
       SUM(COALESCE(c.body_len, 0)) * 1e9D / :window_ns AS body_bytes_per_s
FROM carried c JOIN busiest b ON b.protocol = c.protocol AND b.topic <=> c.topic
WHERE c.message_count > 0
GROUP BY 1, 2, 3, 4
ORDER BY protocol, destination, flow, window_start
"""


def rates(
    messages: DataFrame, exchanges: DataFrame, flymq: Own = None, window_s: float = 1.0, top: int = 10
) -> DataFrame:
    """Question 2: messages and bytes per topic and second, of the ``top`` destinations with most messages.

    A row per protocol, destination, flow (``in``: to the broker, ``out``: from it) and ``window_start`` (a multiple
    of ``window_s`` since 1970) with any: ``messages`` ``body_bytes`` ``messages_per_s`` ``body_bytes_per_s``.

    Counts publishes, refused ones too, and deliveries, kokaq peeks like pops. ``body_bytes`` of FlyMQ's
    PRODUCE_DELAYED, PRODUCE_WITH_TTL, PRODUCE_WITH_SCHEMA and TXN_PRODUCE, whose payload is no ``value``, is 0.
    """
    args = {"window_ns": round(window_s * NS_PER_S), "top": top}
    return _rows(RATES, args, messages=messages, exchanges=exchanges, flymq=flymq)


LATENCY = f"""
SELECT protocol, op,
       COUNT(request_ts_ns) AS requests,
       {_columns(_OF_STATE, "answered", "likely", "silent", "not_expected", "unanswered", "lost", "unknown")},
       COUNT_IF(status = 'error') AS errors,
       {_PERCENTILES},
       MAX(latency_ns) / 1000 AS max_us
FROM exchanges GROUP BY ALL
ORDER BY protocol, op
"""


def latency(exchanges: DataFrame) -> DataFrame:
    """Question 3: how long an operation takes until it is answered.

    A row per protocol and op: ``requests``, those of each state (``answered`` ``likely`` ``silent`` ``not_expected``
    ``unanswered`` ``lost`` ``unknown``), ``errors`` among the answers, and ``p50_us`` ``p95_us`` ``p99_us``
    ``p999_us`` ``max_us`` from the request's first byte to the answer's.

    fq ``message`` and, unless refused, BlipMQ ``PUBLISH`` have no answer by design: the BlipMQ latency is that of
    refusals. In msgq the answer is another client's.
    """
    return _rows(LATENCY, exchanges=exchanges)


SLOWEST = f"""
SELECT e.protocol, e.op, e.destination, e.client_name,
       e.latency_ns / 1000 AS latency_us,
       e.status, e.error_code,
       q.frame_len AS request_len, q.body_len AS request_body_len,
       a.frame_len AS reply_len, a.body_len AS reply_body_len, q.capture_file,
       {_columns("q.{} AS request_{}", "first_packet", "last_packet")},
       {_columns("a.{} AS reply_{}", "first_packet", "last_packet")},
       e.capture, e.connection_id, e.request_offset, e.reply_offset, e.request_ts_ns, e.reply_ts_ns
FROM {_calls("messages")}
WHERE e.latency_ns IS NOT NULL
ORDER BY e.latency_ns DESC, e.request_ts_ns, e.capture, e.connection_id, e.request_offset
LIMIT :n
"""


def slowest(exchanges: DataFrame, messages: DataFrame, n: int = 10) -> DataFrame:
    """Question 4: the ``n`` single requests that took longest, and the packets that prove it.

    A row per exchange, slowest first: protocol, op, destination, client_name, ``latency_us``, status, error_code;
    lengths in bytes: ``request_len`` ``request_body_len`` ``reply_len`` ``reply_body_len``; ``capture_file`` and the
    packets as Wireshark numbers them: ``request_first_packet`` ``request_last_packet`` ``reply_first_packet``
    ``reply_last_packet``; ``request_ts_ns`` ``reply_ts_ns``; and the keys of both messages: capture, connection_id,
    ``request_offset``, ``reply_offset``. Only what pairs: no fq messages, nothing answered by silence.
    """
    return _rows(SLOWEST, {"n": n}, exchanges=exchanges, messages=messages)


_MEDIAN_AND_99 = "PERCENTILE({}_ns, 0.5) / 1000 AS {}_p50_us, PERCENTILE({}_ns, 0.99) / 1000 AS {}_p99_us"
WHERE_THE_TIME_GOES = f"""
WITH parts AS (
  SELECT e.*, q.end_ts_ns - q.ts_ns AS sending_ns,
         GREATEST(a.ts_ns - q.end_ts_ns, 0) AS waiting_ns,
         a.end_ts_ns - a.ts_ns AS receiving_ns,
         q.ts_ns - LAG(a.end_ts_ns) OVER (PARTITION BY e.capture, e.connection_id ORDER BY e.request_offset) AS pause_ns
  FROM {_calls("messages")}
),
lines AS (
  SELECT server_ip, server_port, client_ip,
         SUM(retransmitted_bytes_c2s + retransmitted_bytes_s2c) AS retransmitted_bytes,
         SUM(missing_bytes_c2s + missing_bytes_s2c) AS missing_bytes
  FROM connections GROUP BY ALL
),
sums AS (
  SELECT protocol, server_ip, server_port, client_ip, COUNT(*) AS exchanges,
       {_columns(_MEDIAN_AND_99, "sending", "waiting", "receiving", "thinking")},
         MIN(NULLIF(waiting_ns, 0)) / 1000 AS rtt_at_most_us,
         SUM(sending_ns + receiving_ns) / 1000 AS transfer_us,
         SUM(waiting_ns) / 1000 AS broker_us,
         SUM(COALESCE(thinking_ns, 0)) / 1000 AS client_us
  FROM (SELECT *, IF(pause_ns >= 0, pause_ns, NULL) AS thinking_ns FROM parts) GROUP BY ALL
)
SELECT s.*, l.retransmitted_bytes, l.missing_bytes,
       CASE GREATEST(s.client_us, s.broker_us, s.transfer_us)
         WHEN s.client_us THEN 'client' WHEN s.broker_us THEN 'broker' ELSE 'transfer' END AS mostly
FROM sums s
LEFT JOIN lines l ON l.server_ip = s.server_ip AND l.server_port = s.server_port AND l.client_ip = s.client_ip
ORDER BY s.protocol, s.server_ip, s.server_port, s.client_ip
"""


def where_the_time_goes(exchanges: DataFrame, messages: DataFrame, connections: DataFrame) -> DataFrame:
    """Question 5: is it the network, the broker or the client.

    A row per protocol, server_ip, server_port and client_ip, over its answered ``exchanges``. Each is cut in four, as
    seen where the capture was made, with the percentiles ``_p50_us`` and ``_p99_us``:

    * ``sending``, ``receiving``: first to last packet of the request, of the answer
    * ``waiting``: between them: the broker, and the network between tap and broker
    * ``thinking``: from the end of the previous answer to the request: the client, and the network between tap and
      client. Requests sent before that answer have none

    ``transfer_us`` (sending and receiving), ``broker_us`` and ``client_us`` are the sums, ``mostly`` names the
    largest. ``rtt_at_most_us`` is the shortest wait: no round trip between tap and broker takes longer, and it is not
    taken off ``waiting``. A network that loses shows in ``retransmitted_bytes`` and ``missing_bytes`` of all
    connections between the two. In msgq ``waiting`` contains the other client; fq has logins, binds and status only.
    """
    return _rows(WHERE_THE_TIME_GOES, exchanges=exchanges, messages=messages, connections=connections)


TRANSIT = f"""
SELECT protocol, destination, how,
       COUNT(*) AS deliveries,
       COUNT(DISTINCT capture, publish_connection_id, publish_offset) AS published,
       MIN(latency_ns) / 1000 AS min_us,
       {_PERCENTILES},
       MAX(latency_ns) / 1000 AS max_us
FROM deliveries GROUP BY ALL
ORDER BY protocol, destination, how
"""


def transit(deliveries: DataFrame) -> DataFrame:
    """Question 6: how long from publish to delivery through the broker.

    A row per protocol, destination and ``how`` (the evidence): ``deliveries``, ``published`` (distinct messages among
    them), ``min_us`` ``p50_us`` ``p95_us`` ``p99_us`` ``p999_us`` ``max_us``. With brokers that push (fq, msgq) this is
    the broker's time; with brokers that are polled (FlyMQ, BlipMQ) it contains the consumer's delay. kokaq has no
    deliveries: a pop carries nothing that identifies the push.
    """
    return _rows(TRANSIT, deliveries=deliveries)


BACKLOG = f"""
WITH {_SAID},
{_ASKED},
produced AS (
  SELECT server_ip, server_port, topic, partition, MAX(reply_offset) + 1 AS position FROM asked
  WHERE role = 'publish' AND op NOT IN (SELECT op FROM roles WHERE role = 'deferred') GROUP BY ALL
),
positions AS (
  SELECT server_ip, server_port, topic, partition, group_id AS consumer, 'commit' AS how,
         MAX_BY(COALESCE(reply_offset, IF(COALESCE(mode, 'offset') = 'offset', offset, NULL)), ts_ns) AS position
  FROM asked WHERE role IN ('ack', 'position') GROUP BY ALL
  UNION ALL
  SELECT server_ip, server_port, topic, partition, CONCAT(client_ip, ':', client_port), 'read', MAX_BY(read_to, ts_ns)
  FROM asked WHERE role = 'poll' GROUP BY ALL
),
sent AS (
  -- What was not refused, where the broker keeps messages and does not number them.
  SELECT m.protocol, m.capture, n.server_ip, n.server_port, m.topic, m.role, m.ts_ns, m.body_len,
         COALESCE(m.queue, CONCAT(n.client_ip, ':', n.client_port)) AS consumer,
         -- A queue is bound once, however often that is said; a client gets a copy for each of its subscriptions.
         IF(m.queue IS NULL, m.stream_offset, NULL) AS subscription,
         CONCAT_WS(' ', m.capture, m.connection_id,
                   IF(b.qos = 1, STRING(COALESCE(b.delivery_tag, b.correlation_id)), CONCAT('at ', m.stream_offset))
         ) AS thing
  FROM (SELECT *, IF(protocol = 'blipmq', NULL, group_name) AS queue FROM said) m
  JOIN connections n USING (capture, connection_id)
  LEFT JOIN blipmq b USING {_KEY}
  WHERE m.protocol NOT IN ('flymq', 'msgq') AND NOT m.is_refused AND COALESCE(m.status, '') <> 'error'
),
wanted AS (
  SELECT capture, protocol, server_ip, server_port, topic, consumer, MIN(ts_ns) AS since_ns FROM sent
  WHERE role = 'subscribe' GROUP BY capture, protocol, server_ip, server_port, topic, consumer, subscription
),
offered AS (
  SELECT protocol, server_ip, server_port, topic, w.consumer, COUNT_IF(p.ts_ns > w.since_ns) AS produced
  FROM wanted w
  LEFT JOIN (SELECT * FROM sent WHERE role = 'publish') p USING (capture, protocol, server_ip, server_port, topic)
  GROUP BY ALL
),
received AS (
  SELECT protocol, server_ip, server_port, topic, consumer, COUNT(DISTINCT thing) AS consumed
  FROM sent WHERE role = 'deliver' GROUP BY ALL
),
balance AS (
  SELECT protocol, server_ip, server_port, topic, COUNT_IF(role = 'publish') AS produced,
         COUNT_IF(role = 'taken' AND body_len IS NOT NULL) AS consumed
  FROM sent
  WHERE role IN ('publish', 'taken') AND protocol NOT IN (SELECT protocol FROM roles WHERE role = 'subscribe')
  GROUP BY ALL
)
SELECT protocol, server_ip, server_port, destination, partition_id, consumer, how,
       CAST(produced AS DECIMAL(20,0)) AS produced, CAST(consumed AS DECIMAL(20,0)) AS consumed,
       TRY_CAST(backlog AS DECIMAL(20,0)) AS backlog
FROM (
  SELECT 'flymq' AS protocol, server_ip, server_port, topic AS destination, partition AS partition_id,
         group_id AS consumer, 'broker' AS how,
         MAX_BY(latest_offset, ts_ns) AS produced, MAX_BY(committed_offset, ts_ns) AS consumed,
         MAX_BY(lag, ts_ns) AS backlog
  FROM asked WHERE lag IS NOT NULL GROUP BY ALL
  UNION ALL
  SELECT 'flymq', server_ip, server_port, topic, partition, c.consumer, c.how,
         p.position, c.position, p.position - c.position
  FROM positions c LEFT JOIN produced p USING (server_ip, server_port, topic, partition)
  UNION ALL
  SELECT protocol, server_ip, server_port, topic, NULL, consumer, 'counts',
         produced, COALESCE(consumed, 0), IF(produced IS NULL, NULL, produced - COALESCE(consumed, 0))
  FROM offered FULL JOIN received USING (protocol, server_ip, server_port, topic, consumer)
  UNION ALL
  SELECT protocol, server_ip, server_port, topic, NULL, NULL, 'counts', produced, consumed, produced - consumed
  FROM balance
)
ORDER BY protocol, server_ip, server_port, destination, partition_id, consumer, how
"""


def backlog(
    messages: DataFrame, exchanges: DataFrame, connections: DataFrame, flymq: Own = None, blipmq: Own = None
) -> DataFrame:
    """Question 7: who falls behind, and by how much.

    A row per protocol, server_ip, server_port, destination, partition_id (FlyMQ), ``consumer`` and ``how``:
    ``produced``, ``consumed`` and ``backlog`` (decimal, messages) at the capture's end:

    * FlyMQ ``broker``: as the last GET_LAG reply of the group reports it
    * FlyMQ ``commit``: from the group's position by its last COMMIT, GET_OFFSET or RESET_OFFSET to an offset, up to the
      highest offset that was produced
    * FlyMQ ``read``: from the offset where the client (``ip:port``) stopped reading, up to the highest offset
    * BlipMQ ``counts``: messages published to the topic since the client (``ip:port``) subscribed, less its
      deliveries. Redeliveries (``blipmq``) count once. Dropped and expired messages are in the backlog.
    * fq ``counts``: messages published since the queue's bind, less messages sent to it. This is an upper limit, as the
      program of the bind may skip messages.
    * kokaq ``counts``: pushes less pops that returned a message; no consumer
    """
    return _rows(BACKLOG, messages=messages, exchanges=exchanges, connections=connections, flymq=flymq, blipmq=blipmq)


UNANSWERED = """
SELECT protocol, state, op, destination, client_name, capture, connection_id,
       request_direction, request_offset, reply_offset,
       COALESCE(request_ts_ns, reply_ts_ns) AS ts_ns,
       status, error_code
FROM exchanges
WHERE state IN ('unanswered', 'lost', 'orphan')
ORDER BY ts_ns, capture, connection_id, request_offset, reply_offset
"""


def unanswered(exchanges: DataFrame) -> DataFrame:
    """Question 8: which requests got no answer, and which answers have no request.

    A row per exchange whose ``state`` is ``unanswered``, ``lost`` (the answer lies in a gap) or ``orphan`` (its
    request was not captured), by time. Columns: protocol, state, op, destination, client_name, ``ts_ns``, and an
    orphan's status and error_code. The key of the message is capture, connection_id, request_direction and
    ``request_offset`` or ``reply_offset``. Exchanges in the state ``unknown`` are in ``latency``.
    """
    return _rows(UNANSWERED, exchanges=exchanges)


ERRORS = f"""
WITH {_TOLD},
failures AS (
  SELECT a.protocol, a.src_ip AS server_ip, a.src_port AS server_port, a.dst_ip AS client_ip,
         COALESCE(e.client_name, IF(a.status = 'error', NULLIF(a.client_name, ''), NULL)) AS client_name,
         COALESCE(e.op, a.op) AS op, COALESCE(e.destination, a.destination) AS destination,
         COALESCE(a.error_code, TRY_CAST(GET_JSON_OBJECT(t.msg, '$.result[0]') AS BIGINT)) AS error_code,
         COALESCE(a.error_text, GET_JSON_OBJECT(t.msg, '$.result[1]')) AS error_text, a.ts_ns
  FROM messages a
  LEFT JOIN told e USING {_KEY}
  LEFT JOIN msgq t USING {_KEY}
  WHERE a.direction = 's2c'
    AND (a.status = 'error' OR TRY_CAST(GET_JSON_OBJECT(t.msg, '$.result[0]') AS BIGINT) <> 0)
)
SELECT protocol, server_ip, server_port, client_ip, client_name, op, destination, error_code, error_text,
       COUNT(*) AS errors, MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns
FROM failures GROUP BY ALL
ORDER BY errors DESC, protocol, op, error_code, error_text, destination, client_ip, client_name, server_ip, server_port
"""


def errors(messages: DataFrame, exchanges: DataFrame, msgq: Own = None) -> DataFrame:
    """Question 9: which errors, how many, per client and operation.

    A row per protocol, server_ip, server_port, client_ip, client_name, op (of the request if known, else of the
    reply), destination, error_code and error_text, most frequent first: ``errors``, ``first_ts_ns``, ``last_ts_ns``.

    fq: errors and refused binds; kokaq: Fail, its reason as code; FlyMQ: ERROR and ``success`` false; BlipMQ: NACK;
    msgq knows none; with ``msgq`` those count that clients report as ``{"result": [code, text]}``.
    """
    return _rows(ERRORS, messages=messages, exchanges=exchanges, msgq=msgq)


REPEATS = f"""
WITH {_SAID},
{_ASKED},
{_TAGGED},
seen AS (
  -- Clients count their ids from 1, so only one sender's tell messages apart.
  SELECT 'fq' AS protocol, IF(direction = 'c2s', 'sent again', 'delivered again') AS kind, capture, connection_id,
         CONCAT_WS(' ', connection_id, direction, sender) AS scope, exchange AS destination,
         LOWER(HEX(message_id)) AS key, ts_ns
  FROM fq WHERE message_id IS NOT NULL
  UNION ALL
  SELECT 'msgq', IF(direction = 'c2s', 'sent again', 'delivered again'), capture, connection_id,
         CONCAT_WS(' ', connection_id, direction), `group`, CONCAT(`from`, ':', seq), ts_ns
  FROM msgq JOIN roles r USING (direction, op)
  WHERE r.protocol = 'msgq' AND r.role IN ('publish', 'deliver') AND `from` IS NOT NULL AND seq IS NOT NULL
  UNION ALL
  -- Its clients may open a connection for each request, so a retry is looked for among all of an address.
  SELECT protocol, 'sent again', capture, connection_id, CONCAT_WS(' ', src_ip, dst_ip, dst_port, op, frame_len),
         destination, correlation_id, ts_ns
  FROM messages WHERE protocol = 'kokaq' AND direction = 'c2s' AND correlation_id IS NOT NULL AND flaw IS NULL
  UNION ALL
  SELECT 'flymq', 'read again', capture, connection_id, CAST(connection_id AS STRING), topic,
         CONCAT(partition, ':', r.offset), asked_ns
  FROM asked
  LATERAL VIEW EXPLODE(IF(next_offset IS NULL, ARRAY(offset), TRANSFORM(records, x -> x.offset))) r AS offset
  WHERE role = 'poll'
  UNION ALL
  SELECT 'blipmq', 'delivered again', d.capture, d.connection_id,
         CONCAT_WS(' ', c.server_ip, c.server_port, d.of_subscription), d.topic, CAST(d.tag AS STRING), d.ts_ns
  FROM tagged d JOIN connections c USING (capture, connection_id)
  WHERE d.of_subscription IS NOT NULL
)
SELECT protocol, kind, destination, key, COUNT(*) AS times, capture,
       MIN_BY(connection_id, ts_ns) AS first_connection_id, MAX_BY(connection_id, ts_ns) AS last_connection_id,
       MIN(ts_ns) AS first_ts_ns, MAX(ts_ns) AS last_ts_ns
FROM seen
GROUP BY protocol, kind, capture, scope, destination, key
HAVING COUNT(*) > 1
UNION ALL
SELECT protocol, 'put back', destination, NULL, COUNT(*), capture, MIN_BY(connection_id, ts_ns),
       MAX_BY(connection_id, ts_ns), MIN(ts_ns), MAX(ts_ns)
FROM said WHERE role = 'unlock'
GROUP BY protocol, capture, destination
ORDER BY protocol, kind, first_ts_ns, destination, key, capture
"""


def repeats(
    messages: DataFrame,
    exchanges: DataFrame,
    connections: DataFrame,
    fq: Own = None,
    flymq: Own = None,
    blipmq: Own = None,
    msgq: Own = None,
) -> DataFrame:
    """Question 10: what was retried, redelivered or duplicated.

    A row per protocol, ``kind``, destination and ``key`` that came more than once: ``times``, ``first_ts_ns``,
    ``last_ts_ns`` and, in a capture, the connections of both (``first_connection_id``, ``last_connection_id``):

    * fq ``sent again``, ``delivered again``: the message id of one sender, on one connection
    * kokaq ``sent again``: opaques, op, destination and length, by one client address; ``put back``: locks released,
      counted per destination, without a key
    * FlyMQ ``read again``: ``partition:offset``, by one connection; a produce that is retried looks like two
    * BlipMQ ``delivered again``: the delivery tag of QoS 1, of one subscription: the subscription of the answered POLL,
      or the only subscription of the connection
    * msgq ``sent again``, ``delivered again``: ``from:seq``, on one connection

    All but kokaq need the protocol's table. TCP retransmissions are in ``connections``.
    """
    protocol_tables = {"fq": fq, "flymq": flymq, "blipmq": blipmq, "msgq": msgq}
    return _rows(REPEATS, messages=messages, exchanges=exchanges, connections=connections, **protocol_tables)


ACKS = f"""
WITH {_SAID},
{_ASKED},
{_TAGGED},
events AS (
  -- step 1 opens something that wants an acknowledgement, step -1 closes it.
  SELECT 'blipmq' AS protocol, 'delivery' AS kind, capture, connection_id, topic AS destination,
         CONCAT_WS(' ', connection_id, of_subscription, tag) AS thing, 1 AS step, ts_ns, stream_offset
  FROM tagged
  UNION ALL
  SELECT 'blipmq', 'delivery', a.capture, a.connection_id, NULL,
         CONCAT_WS(' ', a.connection_id, a.subscription_id, a.correlation_id), -1, a.ts_ns, a.stream_offset
  FROM blipmq a
  JOIN roles r USING (direction, op)
  LEFT JOIN told e USING {_KEY}
  WHERE r.protocol = 'blipmq' AND r.role = 'ack' AND COALESCE(e.status, '') <> 'error'
  UNION ALL
  -- A lock is given back, or ends with the message that is taken.
  SELECT protocol, 'peek lock', capture, connection_id, destination, CONCAT_WS(' ', dst_ip, dst_port, destination),
         IF(role = 'lock', 1, -1), ts_ns, stream_offset
  FROM said
  WHERE protocol IN (SELECT protocol FROM roles WHERE role = 'lock') AND role IN ('lock', 'unlock', 'take')
    AND NOT is_refused
),
followed AS (
  SELECT *, LEAD(step) OVER w AS next_step, LEAD(ts_ns) OVER w AS next_ts_ns
  FROM events WINDOW w AS (PARTITION BY protocol, capture, thing ORDER BY ts_ns, step DESC, stream_offset)
),
due AS (
  SELECT e.protocol, e.kind, e.capture, c.server_ip, c.server_port, c.client_ip, e.destination, e.ts_ns, e.next_ts_ns,
         IF(e.next_step = -1, e.next_ts_ns - e.ts_ns, NULL) AS late_ns
  FROM followed e JOIN connections c USING (capture, connection_id)
  WHERE e.step = 1
),
held AS (
  SELECT *, SUM(change) OVER (PARTITION BY capture, protocol, kind, client_ip, server_ip, server_port, destination
                              ORDER BY at_ns, change ROWS UNBOUNDED PRECEDING) AS held
  FROM due LATERAL VIEW STACK(2, ts_ns, 1, next_ts_ns, -1) steps AS at_ns, change
  WHERE at_ns IS NOT NULL
),
reads AS (
  SELECT *, IF(role = 'ack', offset, NULL) AS committed, IF(SIZE(records) = 0, NULL, read_to) AS reached_now,
         IF(role = 'ack', asked_ns, ts_ns) AS at_ns
  FROM asked WHERE role IN ('ack', 'poll')
),
commits AS (
  SELECT *, LAST_VALUE(reached_now, TRUE) OVER w AS reached,
         IF(role = 'ack', at_ns - LAST_VALUE(IF(reached_now IS NULL, NULL, at_ns), TRUE) OVER w, NULL) AS late_ns
  FROM reads
  WINDOW w AS (PARTITION BY capture, connection_id, topic, partition ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
)
SELECT protocol, kind, server_ip, server_port, client_ip, destination,
       COUNT_IF(change = 1) AS due,
       COUNT(IF(change = 1, late_ns, NULL)) AS acked,
       {_columns("PERCENTILE(IF(change = 1, late_ns, NULL), 0.{}) / 1000 AS p{}_us", "50", "95", "99")},
       MAX(late_ns) / 1000 AS max_us,
       CAST(MAX(held) AS DECIMAL(20,0)) AS most_outstanding
FROM held GROUP BY ALL
UNION ALL
SELECT 'flymq', 'commit', server_ip, server_port, client_ip, topic,
       COUNT(reached_now), COUNT(committed),
       {_columns("PERCENTILE(late_ns, 0.{}) / 1000", "50", "95", "99")},
       MAX(late_ns) / 1000,
       TRY_CAST(MAX(reached - committed) AS DECIMAL(20,0))
FROM commits GROUP BY ALL
ORDER BY protocol, kind, server_ip, server_port, client_ip, destination
"""


def acks(
    messages: DataFrame, exchanges: DataFrame, connections: DataFrame, flymq: Own = None, blipmq: Own = None
) -> DataFrame:
    """Question 11: how late acknowledgements are, and how many are outstanding.

    A row per protocol, ``kind``, server_ip, server_port, client_ip and destination: ``due``, ``acked``, the time
    between both (``p50_us`` ``p95_us`` ``p99_us`` ``max_us``) and ``most_outstanding`` at one time:

    * BlipMQ ``delivery`` (``blipmq``): deliveries of QoS 1, acknowledged before they came again
    * kokaq ``peek lock``: locks taken, given back by ReleasePeekLock or Pop of the same queue
    * FlyMQ ``commit`` (``flymq``): replies with messages, and COMMITs. The time is from the last such reply of the
      partition to the COMMIT on the same connection. Messages read but not committed are outstanding.

    Refused requests do not count. fq and msgq have no acknowledgements.
    """
    return _rows(ACKS, messages=messages, exchanges=exchanges, connections=connections, flymq=flymq, blipmq=blipmq)


CHURN = f"""
WITH {_TOLD},
acted AS (
  SELECT m.capture, m.connection_id, r.role,
         m.ts_ns - LAG(m.ts_ns) OVER (PARTITION BY m.capture, m.connection_id, r.role
                                      ORDER BY m.ts_ns, m.stream_offset) AS gap_ns
  FROM messages m JOIN roles r USING (protocol, direction, op)
  WHERE r.role IN ('heartbeat', 'login')
  UNION ALL
  -- Where a protocol has words for a login that is refused, only these count.
  SELECT m.capture, m.connection_id, COALESCE(x.role, 'denied'), NULL
  FROM messages m
  LEFT JOIN told e USING {_KEY}
  LEFT JOIN roles x ON x.protocol = m.protocol AND x.error_text = m.error_text AND x.role IN ('denied', 'outdated')
  LEFT JOIN roles l ON l.protocol = m.protocol AND l.op = e.op AND l.role = 'login'
  WHERE m.direction = 's2c' AND m.status = 'error'
    AND (x.role IS NOT NULL OR l.role IS NOT NULL
         AND m.protocol NOT IN (SELECT protocol FROM roles WHERE role = 'denied'))
),
acts AS (
  SELECT capture, connection_id, COUNT_IF(role = 'login') AS logins, COUNT_IF(role = 'denied') AS failed_logins,
         COUNT_IF(role = 'outdated') AS version_mismatches, COUNT_IF(role = 'heartbeat') AS heartbeats,
         MAX(IF(role = 'heartbeat', gap_ns, NULL)) AS gap_ns
  FROM acted GROUP BY ALL
),
lives AS (
  SELECT *, MAX(last_ts_ns) OVER (PARTITION BY capture, protocol, server_ip, server_port, client_ip
                                  ORDER BY first_ts_ns
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM connections
)
SELECT protocol, server_ip, server_port, client_ip,
       COUNT(*) AS connections,
       COUNT_IF(first_ts_ns > before_ns) AS reconnects,
       {_columns("COUNT_IF(end_state = '{}') AS {}", "reset", "closed")},
       COUNT_IF(end_state = 'open') AS still_open,
       PERCENTILE(last_ts_ns - first_ts_ns, 0.5) / 1e9D AS median_life_s,
       {_columns(_FILLED, "logins", "failed_logins", "version_mismatches", "heartbeats")},
       MAX(gap_ns) / 1e9D AS longest_heartbeat_gap_s
FROM lives LEFT JOIN acts USING (capture, connection_id) GROUP BY ALL
ORDER BY connections DESC, protocol, server_ip, server_port, client_ip
"""


def churn(connections: DataFrame, messages: DataFrame, exchanges: DataFrame) -> DataFrame:
    """Question 12: who reconnects, fails to log in, speaks another version or stops its heartbeats.

    A row per protocol (null: not ours), server_ip, server_port and client_ip, busiest first: ``connections``;
    ``reconnects``, begun when all before them were over; how they ended (``reset`` ``closed`` ``still_open``);
    ``median_life_s``, first to last packet; ``logins`` (fq, FlyMQ, BlipMQ; msgq ``getlname``); ``failed_logins``
    (fq, FlyMQ; BlipMQ a wrong key); ``version_mismatches`` (BlipMQ 426); ``heartbeats`` (fq, BlipMQ and msgq pings,
    kokaq ``Nop``) and ``longest_heartbeat_gap_s`` between two of one connection. An fq client has two connections.
    """
    return _rows(CHURN, connections=connections, messages=messages, exchanges=exchanges)


POLLING = f"""
WITH {_SAID},
asks AS (
  SELECT m.protocol, m.role AS kind, m.op, COALESCE(m.destination, a.destination) AS destination, m.src_ip AS client_ip,
         CASE WHEN m.role = 'publish' THEN 1
              WHEN m.state = 'silent' OR x.role IS NOT NULL THEN 0
              WHEN m.state IS NULL OR m.state NOT IN ('answered', 'likely') OR m.is_refused THEN NULL
              WHEN f.records IS NOT NULL THEN SIZE(f.records)
              WHEN a.body_len IS NOT NULL THEN 1 ELSE 0 END AS message_count,
         m.is_refused AND x.role IS NULL AS refused,
         CASE WHEN m.role = 'publish' THEN COALESCE(m.body_len, 0)
              WHEN m.is_refused THEN 0 ELSE COALESCE(a.body_len, 0) END AS body_len,
         m.role = 'publish' AND COALESCE((p.flags & 14) <> 0, FALSE) AS compressed
  FROM said m
  LEFT JOIN flymq p USING {_KEY}
  LEFT JOIN messages a ON a.capture = m.capture AND a.connection_id = m.connection_id AND a.direction <> m.direction
    AND a.stream_offset = m.reply_offset
  LEFT JOIN flymq f ON f.capture = a.capture AND f.connection_id = a.connection_id AND f.direction = a.direction
    AND f.stream_offset = a.stream_offset
  LEFT JOIN roles x ON x.protocol = m.protocol AND x.role = 'empty' AND x.error_text = a.error_text
  WHERE m.role IN ('poll', 'publish')
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
FROM asks GROUP BY ALL
ORDER BY protocol, kind, op, destination, client_ip
"""


def polling(messages: DataFrame, exchanges: DataFrame, flymq: Own = None) -> DataFrame:
    """Question 13: how wasteful polling and batching are.

    A row per protocol, ``kind`` (``poll`` or ``publish``), op, destination and client_ip: ``requests``; of polls
    ``empty`` (answered without a message, or by silence), ``refused`` (with an error) and ``unknown`` (the outcome
    was not captured); ``messages``, ``messages_per_request`` (of known outcome), ``body_bytes``,
    ``body_bytes_per_message`` and, of publishes, ``compressed`` (``flymq``).

    An empty kokaq queue answers Fail, as any refusal does: ``refused``. The destination of a BlipMQ POLL is known
    only if a message came. fq and msgq push.
    """
    return _rows(POLLING, messages=messages, exchanges=exchanges, flymq=flymq)


WHAT_DID = """
WITH theirs AS (
  SELECT DISTINCT m.capture, m.connection_id
  FROM messages m
  LEFT JOIN roles r ON r.protocol = m.protocol AND r.op = m.op AND r.role = 'account'
  WHERE :client IN (IF(m.direction = 'c2s', src_ip, dst_ip),
                    CONCAT(IF(m.direction = 'c2s', src_ip, dst_ip), ':', IF(m.direction = 'c2s', src_port, dst_port)))
     OR (m.direction = 'c2s' AND m.client_name = :client AND r.role IS NULL)
)
SELECT m.ts, m.ts_ns,
       IF(m.direction = 'c2s', CONCAT(m.src_ip, ':', m.src_port), CONCAT(m.dst_ip, ':', m.dst_port)) AS client,
       IF(m.direction = 'c2s', CONCAT(m.dst_ip, ':', m.dst_port), CONCAT(m.src_ip, ':', m.src_port)) AS server,
       m.direction, m.protocol, m.op, m.destination, m.body_len, m.status, m.error_text, m.flaw,
       CONCAT_WS(' ', DATE_FORMAT(m.ts, 'HH:mm:ss.SSSSSS'), IF(m.direction = 'c2s', '->', '<-'), m.protocol,
                 COALESCE(m.op, CONCAT('op ', m.op_code), '?'), m.destination, CONCAT(m.body_len, ' bytes'), m.status,
                 m.error_code, m.error_text, m.flaw, IF(m.gap_before_bytes > 0,
                 CONCAT('after a gap of ', m.gap_before_bytes, ' bytes'), NULL)) AS line,
       m.capture_file, m.first_packet, m.capture, m.connection_id, m.stream_offset
FROM messages m JOIN theirs t USING (capture, connection_id)
WHERE m.ts >= CAST(:start AS TIMESTAMP) AND m.ts < CAST(:end AS TIMESTAMP)
ORDER BY m.ts_ns, m.capture, m.capture_file, m.first_packet, m.connection_id, m.direction, m.stream_offset
"""


def what_did(
    messages: DataFrame, client: str, start: datetime.datetime | str, end: datetime.datetime | str
) -> DataFrame:
    """Question 14: what a client did between two moments, as a sequence to read.

    ``client`` is an address, an ``address:port``, or a name: the user of an fq or FlyMQ login, a kokaq client, a msgq
    ``from``. Takes all messages of its connections from ``start`` up to, not including, ``end``; moments without a
    zone are UTC. A row per message, by time. Columns: ts, ts_ns, ``client`` and ``server`` (``address:port``),
    direction, protocol, op, destination, body_len, status, error_text, flaw, and ``line``: all of it as text, in the
    session's time zone. The message is identified by capture_file, first_packet, capture, connection_id, stream_offset.
    """
    args = {"client": client, "start": _moment(start), "end": _moment(end)}
    return _rows(WHAT_DID, args, messages=messages)


TRUST = f"""
WITH decoded AS (
  SELECT capture, connection_id, COUNT(*) AS messages, SUM(frame_len) AS decoded_bytes,
         COUNT_IF(flaw IS NOT NULL) AS flawed, COUNT_IF(resynced) AS resynced,
         COUNT_IF(end_ts_ns < ts_ns OR ts_ns < before_ns) AS backward_in_time
  FROM (
    SELECT *, LAG(ts_ns) OVER (PARTITION BY capture, connection_id, direction ORDER BY stream_offset) AS before_ns
    FROM messages
  )
  GROUP BY capture, connection_id
),
lost AS (
  SELECT capture, connection_id,
         {_columns("SUM(IF(kind = '{}', length, 0)) AS {}_bytes", "gap", "undecoded", "conflict")},
         SUM(IF(kind = 'undecoded' AND reason = 'tls', length, 0)) AS encrypted_bytes
  FROM problems
  WHERE reason <> 'proxy protocol'  -- a balancer's header: nothing of the protocol is lost
  GROUP BY capture, connection_id
)
SELECT c.protocol,
       COUNT(*) AS connections,
       COUNT_IF(NOT c.syn_seen) AS begun_before,
       COUNT_IF(c.end_state = 'open') AS not_ended,
       COUNT_IF(c.packets_c2s = 0 OR c.packets_s2c = 0) AS one_sided,
       COUNT_IF(c.identified_by = 'port') AS by_port_only,
       SUM(c.bytes_c2s + c.bytes_s2c) AS bytes,
       {_columns(_FILLED, "decoded_bytes")},
       SUM(COALESCE(d.decoded_bytes, 0)) / NULLIF(SUM(c.bytes_c2s + c.bytes_s2c), 0) AS decoded_share,
       {_columns(_FILLED, "undecoded_bytes", "encrypted_bytes", "gap_bytes", "conflict_bytes")},
       SUM(c.retransmitted_bytes_c2s + c.retransmitted_bytes_s2c) AS retransmitted_bytes,
       {_columns(_FILLED, "messages", "flawed", "resynced", "backward_in_time")},
       SUM(COALESCE(l.gap_bytes, 0) + COALESCE(l.undecoded_bytes, 0) + COALESCE(l.conflict_bytes, 0)
           + COALESCE(d.flawed, 0)) = 0
         AND COUNT_IF(NOT c.syn_seen OR c.packets_c2s = 0 OR c.packets_s2c = 0) = 0 AS whole
FROM connections c
LEFT JOIN decoded d USING (capture, connection_id)
LEFT JOIN lost l USING (capture, connection_id)
GROUP BY c.protocol
ORDER BY c.protocol
"""


def trust(connections: DataFrame, problems: DataFrame, messages: DataFrame) -> DataFrame:
    """Question 15: how far the capture can be trusted.

    A row per protocol (null: connections of foreign protocols):

    * ``connections``, and of them ``begun_before`` (no SYN captured), ``not_ended``, ``one_sided`` (packets of one
      side only) and ``by_port_only`` (the port alone decided the protocol)
    * ``bytes`` captured: ``decoded_bytes`` became messages (``decoded_share``), ``undecoded_bytes`` did not, of them
      ``encrypted_bytes``; ``gap_bytes`` never captured; ``conflict_bytes`` sent twice with different content;
      ``retransmitted_bytes``
    * ``messages``, and of them ``flawed``, ``resynced`` (found by a search) and ``backward_in_time`` (captured before
      the previous message)
    * ``whole``: no gap; nothing undecoded, flawed or in conflict; both sides of every connection from its SYN on
    """
    return _rows(TRUST, connections=connections, problems=problems, messages=messages)


QUESTIONS = (
    who_talks, rates, latency, slowest, where_the_time_goes, transit, backlog, unanswered, errors, repeats, acks, churn,
    polling, what_did, trust,
)  # fmt: skip
for _question in QUESTIONS:
    _sql = globals()[_question.__name__.upper()].strip().replace("\n", "\n        ")
    _question.__doc__ = f"{_question.__doc__}\n    SQL::\n\n        {_sql}\n    "
