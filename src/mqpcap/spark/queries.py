"""The fifteen questions one asks of a capture of message queues, as functions over the tables' DataFrames.

Each takes the tables it needs (as ``spark.read.parquet("tables/messages")`` or ``format("mqpcap")`` gives them) and returns
a DataFrame. Its docstring ends in the SQL it runs; over views with the tables' names that text does the same by
itself, and `sql` gives it. Times and latencies are nanoseconds, percentiles exact.
"""

import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query = TypeVar("Query", bound="Callable[..., DataFrame]")
QUESTIONS: "dict[str, Callable[..., DataFrame]]" = {}
"""The functions by name, in the order of the questions."""


def _question(function: Query) -> Query:
    QUESTIONS[function.__name__] = function
    return function


def sql(question: "str | Callable[..., DataFrame]") -> str:
    """The SQL of a question.

    >>> sql("who_talks").split()[:3]
    ['SELECT', 'protocol,', 'destination,']
    """
    function = QUESTIONS[question] if isinstance(question, str) else question
    _, _, text = (function.__doc__ or "").partition("::\n\n")
    return textwrap.dedent(text).strip()


def _ran(
    question: "Callable[..., DataFrame]", values: dict[str, object] | None = None, **tables: "DataFrame"
) -> "DataFrame":
    """A question's SQL over the tables given: each name behind FROM or JOIN that is a table's becomes its DataFrame."""
    text = sql(question)
    for name in tables:
        text = re.sub(rf"\b(FROM|JOIN) {name}\b", rf"\1 {{{name}}}", text)
    frame = next(iter(tables.values()))
    return frame.sparkSession.sql(text, values or {}, **tables)


@_question
def who_talks(messages: "DataFrame") -> "DataFrame":
    """1. Who talks to which destination, and in which way.

    A row for each client, destination and operation: how many messages, first and last time. The client is its name
    where the protocol has one, and always its address.

    ::

        SELECT protocol, destination, direction, op,
               CASE direction WHEN 'c2s' THEN src_ip ELSE dst_ip END AS client_ip, client_name, group_name,
               count(*) AS messages, coalesce(sum(body_len), 0) AS body_bytes,
               min(ts_ns) AS first_ts_ns, max(ts_ns) AS last_ts_ns
        FROM messages
        WHERE destination IS NOT NULL
        GROUP BY ALL
        ORDER BY messages DESC, protocol, destination, direction, op, client_ip
    """
    return _ran(who_talks, messages=messages)


@_question
def busiest(messages: "DataFrame", seconds: int = 1, top: int = 10) -> "DataFrame":
    """2. Messages and bytes per destination and interval of so many seconds, the top of all.

    ::

        SELECT protocol, destination, ts_ns DIV (:seconds * 1000000000L) * :seconds AS second,
               count(*) AS messages, coalesce(sum(body_len), 0) AS body_bytes, sum(frame_len) AS frame_bytes
        FROM messages
        WHERE destination IS NOT NULL
        GROUP BY ALL
        ORDER BY body_bytes DESC, messages DESC, protocol, destination, second
        LIMIT :top
    """
    return _ran(busiest, {"seconds": seconds, "top": top}, messages=messages)


@_question
def acknowledgement_latency(exchanges: "DataFrame") -> "DataFrame":
    """3. How long requests take until answered, by operation and destination: percentiles in nanoseconds.

    ::

        SELECT protocol, op, destination, count(*) AS answered,
               percentile(latency_ns, 0.5) AS p50_ns, percentile(latency_ns, 0.95) AS p95_ns,
               percentile(latency_ns, 0.99) AS p99_ns, percentile(latency_ns, 0.999) AS p999_ns,
               max(latency_ns) AS max_ns
        FROM exchanges
        WHERE state = 'answered'
        GROUP BY ALL
        ORDER BY p99_ns DESC, protocol, op, destination
    """
    return _ran(acknowledgement_latency, exchanges=exchanges)


@_question
def slowest(exchanges: "DataFrame", messages: "DataFrame", top: int = 10) -> "DataFrame":
    """4. The slowest single requests, and the packets that prove them.

    ::

        SELECT e.protocol, e.op, e.destination, e.client_name, e.latency_ns, e.status,
               q.capture_file, q.first_packet AS request_packet, r.first_packet AS reply_packet,
               q.body_len, e.connection_id, e.request_offset, e.request_ts_ns
        FROM exchanges e
        JOIN messages q ON q.connection_id = e.connection_id AND q.direction = 'c2s'
                       AND q.stream_offset = e.request_offset
        JOIN messages r ON r.connection_id = e.connection_id AND r.direction = 's2c'
                       AND r.stream_offset = e.reply_offset
        WHERE e.state = 'answered'
        ORDER BY e.latency_ns DESC, e.connection_id, e.request_offset
        LIMIT :top
    """
    return _ran(slowest, {"top": top}, exchanges=exchanges, messages=messages)


@_question
def where_time_goes(exchanges: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """5. Network, server or client: median time to send the request, to begin and to send the reply, and of the client's pause.

    Sending is from a message's first packet to its last; the server's time is from the request's last packet to the
    reply's first; the client's pause is from a reply to the next request of its connection.

    ::

        SELECT protocol, op, count(*) AS answered,
               percentile(request_end_ns - request_ts_ns, 0.5) AS request_ns,
               percentile(reply_ts_ns - request_end_ns, 0.5) AS server_ns,
               percentile(reply_end_ns - reply_ts_ns, 0.5) AS reply_ns,
               percentile(next_ts_ns - reply_end_ns, 0.5) AS client_ns
        FROM (SELECT e.protocol, e.op, e.request_ts_ns, e.reply_ts_ns, q.end_ts_ns AS request_end_ns,
                     r.end_ts_ns AS reply_end_ns,
                     lead(e.request_ts_ns) OVER (PARTITION BY e.connection_id ORDER BY e.request_offset) AS next_ts_ns
              FROM exchanges e
              JOIN messages q ON q.connection_id = e.connection_id AND q.direction = 'c2s'
                             AND q.stream_offset = e.request_offset
              JOIN messages r ON r.connection_id = e.connection_id AND r.direction = 's2c'
                             AND r.stream_offset = e.reply_offset
              WHERE e.state = 'answered')
        GROUP BY ALL
        ORDER BY protocol, op
    """
    return _ran(where_time_goes, exchanges=exchanges, messages=messages)


@_question
def transit(deliveries: "DataFrame") -> "DataFrame":
    """6. How long from publish to delivery through the broker, and by which evidence.

    ::

        SELECT protocol, destination, how, count(*) AS deliveries, count(DISTINCT publish_connection_id, publish_offset)
                   AS publishes,
               percentile(latency_ns, 0.5) AS p50_ns, percentile(latency_ns, 0.99) AS p99_ns, max(latency_ns) AS max_ns
        FROM deliveries
        GROUP BY ALL
        ORDER BY protocol, destination, how
    """
    return _ran(transit, deliveries=deliveries)


@_question
def backlog(messages: "DataFrame", deliveries: "DataFrame") -> "DataFrame":
    """7. Who falls behind: what was published to a destination against what of it was delivered, and the last of each.

    Of the protocols whose deliveries are told (kokaq has none).

    ::

        SELECT p.protocol, p.destination, p.published, coalesce(d.delivered, 0) AS delivered,
               p.published - coalesce(d.delivered, 0) AS behind, p.last_published_ts_ns, d.last_delivered_ts_ns
        FROM (SELECT protocol, destination, count(*) AS published, max(ts_ns) AS last_published_ts_ns
              FROM messages
              WHERE direction = 'c2s' AND flaw IS NULL AND (protocol, op) IN (
                  ('fq', 'message'), ('blipmq', 'PUBLISH'), ('flymq', 'PRODUCE'), ('msgq', 'send'))
              GROUP BY ALL) p
        LEFT JOIN (SELECT protocol, destination, count(DISTINCT publish_connection_id, publish_offset) AS delivered,
                          max(deliver_ts_ns) AS last_delivered_ts_ns
                   FROM deliveries
                   GROUP BY ALL) d ON d.protocol = p.protocol AND d.destination = p.destination
        ORDER BY behind DESC, p.protocol, p.destination
    """
    return _ran(backlog, messages=messages, deliveries=deliveries)


@_question
def unanswered(exchanges: "DataFrame") -> "DataFrame":
    """8. Requests without an answer and answers without a request, by how sure that is.

    ::

        SELECT protocol, op, state, count(*) AS exchanges, min(coalesce(request_ts_ns, reply_ts_ns)) AS first_ts_ns
        FROM exchanges
        WHERE state IN ('unanswered', 'lost', 'orphan', 'unknown')
        GROUP BY ALL
        ORDER BY exchanges DESC, protocol, op, state
    """
    return _ran(unanswered, exchanges=exchanges)


@_question
def errors(messages: "DataFrame") -> "DataFrame":
    """9. Which errors, how many, from which server to which client.

    ::

        SELECT protocol, op, error_code, error_text, src_ip AS server_ip, src_port AS server_port, dst_ip AS client_ip,
               client_name, count(*) AS errors, min(ts_ns) AS first_ts_ns
        FROM messages
        WHERE status = 'error'
        GROUP BY ALL
        ORDER BY errors DESC, protocol, op, error_code, error_text, client_ip, first_ts_ns
    """
    return _ran(errors, messages=messages)


@_question
def delivered_again(deliveries: "DataFrame") -> "DataFrame":
    """10. What came more than once: messages delivered again on one connection, or fanned out to many.

    ::

        SELECT protocol, destination, key, count(*) AS deliveries,
               count(DISTINCT deliver_connection_id) AS connections,
               count(*) - count(DISTINCT deliver_connection_id) AS redelivered,
               min(deliver_ts_ns) AS first_ts_ns, max(deliver_ts_ns) AS last_ts_ns
        FROM deliveries
        GROUP BY protocol, destination, key, publish_connection_id, publish_offset
        HAVING count(*) > 1
        ORDER BY redelivered DESC, deliveries DESC, protocol, destination, key, first_ts_ns
    """
    return _ran(delivered_again, deliveries=deliveries)


@_question
def outstanding(exchanges: "DataFrame") -> "DataFrame":
    """11. How many requests a client lets be outstanding, and how late their answers come.

    ::

        SELECT protocol, connection_id, count_if(step = 1) AS answered, max(waiting) AS most_outstanding,
               percentile(latency_ns, 0.5) AS p50_ns, max(latency_ns) AS max_ns
        FROM (SELECT protocol, connection_id, latency_ns, step,
                     sum(step) OVER (PARTITION BY connection_id ORDER BY at, step DESC ROWS UNBOUNDED PRECEDING)
                         AS waiting
              FROM (SELECT protocol, connection_id, latency_ns, step,
                           CASE step WHEN 1 THEN request_ts_ns ELSE reply_ts_ns END AS at
                    FROM exchanges
                    LATERAL VIEW explode(array(1, -1)) steps AS step
                    WHERE state = 'answered'))
        GROUP BY protocol, connection_id
        ORDER BY most_outstanding DESC, protocol, connection_id
    """
    return _ran(outstanding, exchanges=exchanges)


@_question
def churn(connections: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """12. Who reconnects, how connections end, and which logins failed.

    ::

        SELECT c.protocol, c.client_ip, c.server_ip, c.server_port, count(*) AS connections,
               count_if(c.syn_seen) AS opened, count_if(c.end_state = 'reset') AS reset,
               count_if(c.end_state = 'closed') AS closed, count_if(c.end_state = 'open') AS still_open,
               coalesce(sum(m.refused), 0) AS refused,
               percentile(c.last_ts_ns - c.first_ts_ns, 0.5) AS lasted_p50_ns
        FROM connections c
        LEFT JOIN (SELECT connection_id, count(*) AS refused
                   FROM messages
                   WHERE status = 'error' AND op IN ('auth', 'error', 'AUTH', 'AUTH_RESPONSE', 'ERROR', 'NACK', 'HELLO')
                   GROUP BY connection_id) m ON m.connection_id = c.connection_id
        WHERE c.protocol IS NOT NULL
        GROUP BY ALL
        ORDER BY connections DESC, c.protocol, c.client_ip, c.server_ip, c.server_port
    """
    return _ran(churn, connections=connections, messages=messages)


@_question
def polling(exchanges: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """13. How wasteful polling is: requests that take, replies that carried nothing, bytes of those that did.

    ::

        SELECT e.protocol, e.op, e.destination, count(*) AS requests, count(e.reply_offset) AS replies,
               count_if(e.reply_offset IS NOT NULL AND coalesce(r.body_len, 0) = 0) AS empty,
               percentile(CASE WHEN r.body_len > 0 THEN r.body_len END, 0.5) AS body_p50,
               max(r.body_len) AS body_max
        FROM exchanges e
        LEFT JOIN messages r ON r.connection_id = e.connection_id AND r.direction = 's2c'
                            AND r.stream_offset = e.reply_offset
        WHERE e.request_offset IS NOT NULL
          AND (e.protocol, e.op) IN (('flymq', 'FETCH'), ('flymq', 'CONSUME'), ('flymq', 'CONSUME_ZERO_COPY'),
                                     ('flymq', 'FETCH_BINARY'), ('blipmq', 'POLL'), ('kokaq', 'Pop'), ('kokaq', 'Peek'))
        GROUP BY e.protocol, e.op, e.destination
        ORDER BY requests DESC, e.protocol, e.op, e.destination
    """
    return _ran(polling, exchanges=exchanges, messages=messages)


@_question
def story(messages: "DataFrame", client: str, from_ns: int = 0, until_ns: int = (1 << 63) - 1) -> "DataFrame":
    """14. What a client did between two times, in order; by its address or its name.

    ::

        SELECT ts, direction, protocol, op, destination, correlation_id, message_id, body_len, status, error_text, flaw,
               connection_id, first_packet, ts_ns
        FROM messages
        WHERE (client_name = :client OR CASE direction WHEN 'c2s' THEN src_ip ELSE dst_ip END = :client)
          AND ts_ns BETWEEN :from_ns AND :until_ns
        ORDER BY ts_ns, first_packet, connection_id, stream_offset
    """
    return _ran(story, {"client": client, "from_ns": from_ns, "until_ns": until_ns}, messages=messages)


@_question
def trust(connections: "DataFrame", messages: "DataFrame", problems: "DataFrame") -> "DataFrame":
    """15. Whether the capture can be trusted: bytes missing, undecoded and contradictory, messages with a flaw, by protocol.

    ``decoded`` is the part of captured bytes that became messages; protocol is null where it is not ours.

    ::

        SELECT c.protocol, count(*) AS connections, count_if(NOT c.syn_seen) AS began_before,
               count_if(c.bytes_c2s = 0 OR c.bytes_s2c = 0) AS one_sided,
               sum(c.bytes_c2s + c.bytes_s2c) AS bytes, sum(c.missing_bytes_c2s + c.missing_bytes_s2c) AS missing_bytes,
               sum(c.conflict_bytes_c2s + c.conflict_bytes_s2c) AS conflict_bytes,
               coalesce(sum(p.undecoded), 0) AS undecoded_bytes,
               coalesce(sum(m.messages), 0) AS messages, coalesce(sum(m.flawed), 0) AS flawed,
               coalesce(sum(m.resynced), 0) AS resynced,
               coalesce(sum(m.bytes), 0) / nullif(sum(c.bytes_c2s + c.bytes_s2c), 0) AS decoded
        FROM connections c
        LEFT JOIN (SELECT connection_id, sum(CASE kind WHEN 'undecoded' THEN length END) AS undecoded
                   FROM problems GROUP BY connection_id) p ON p.connection_id = c.connection_id
        LEFT JOIN (SELECT connection_id, count(*) AS messages, count(flaw) AS flawed, count_if(resynced) AS resynced,
                          sum(frame_len) AS bytes
                   FROM messages GROUP BY connection_id) m ON m.connection_id = c.connection_id
        GROUP BY c.protocol
        ORDER BY c.protocol
    """
    return _ran(trust, connections=connections, messages=messages, problems=problems)
