"""62 habits of a Scapy user and of an analyst, as they write them.

Each has its lines and what the last line gives. Expected values come from the truth file (what the client sent and
read), from tshark and capinfos, and from arithmetic.
"""

import contextlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqpcap.scapy import BlipMQ

ROOT = Path(__file__).resolve().parents[1]
TRUTH = json.loads((ROOT / "tests/truth/blipmq/qos1.truth.json").read_text())
EVENTS = [event for connection in TRUTH["connections"] for event in connection["events"]]
OPERATIONS = Counter(event["type_name"] for event in EVENTS)
MESSAGES, CONNECTIONS = len(EVENTS), len(TRUTH["connections"])
ANSWERED = sum(event["answers"] is not None and event["dir"] == "s2c" for event in EVENTS)
PUBLISHES = [event for event in EVENTS if event["type_name"] == "PUBLISH"]
BODY_BYTES = sum(event["fields"]["body_len"] for event in PUBLISHES)
PUBLISHED = sum(event["dir"] == "c2s" for event in PUBLISHES)
PRELUDE = """
from scapy.all import *
from mqpcap.scapy import *
import mqpcap, pickle
import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
import pandas as pd, polars as pl, duckdb
messages = sniff(offline=C, session=MqSession, quiet=True)
publishes = messages[BlipMQPublish]
publish = publishes[0]
table = mqpcap.read(C)
df = table.to_pandas()
mqpcap.export(C, out=f"{T}/tables")
"""
SCAPY: dict[str, tuple[str, Any]] = {
    "sniff a file": ("len(sniff(offline=C, session=MqSession, quiet=True))", MESSAGES),
    "sniff a list": ("len(sniff(offline=rdpcap(C), session=MqSession, quiet=True))", MESSAGES),
    "sniff with lfilter": (
        "len(sniff(offline=C, session=MqSession, lfilter=lambda m: BlipMQPublish in m, quiet=True))",
        OPERATIONS["PUBLISH"],
    ),
    "sniff with prn": (
        "seen = []\nsniff(offline=C, session=MqSession, prn=seen.append, store=False, quiet=True)\nlen(seen)", MESSAGES,
    ),
    "sniff with count": ("len(sniff(offline=C, session=MqSession, count=5, quiet=True))", 5),
    "sniff with stop_filter": (
        "until = lambda m: m.mq.op == 'PUBLISH'\n"
        "sniff(offline=C, session=MqSession, stop_filter=until, quiet=True)[-1].mq.first_packet",
        12,
    ),
    "AsyncSniffer": (
        "sniffer = AsyncSniffer(offline=C, session=MqSession, quiet=True)\nsniffer.start()\nsniffer.join()\n"
        "len(sniffer.results)", MESSAGES,
    ),
    "list.summary": ("printed(messages.summary).count('\\n')", MESSAGES),
    "list.nsummary": ("printed(messages.nsummary).splitlines()[3][:5]", "0003 "),
    "list.show": ("printed(messages.show).count('\\n')", MESSAGES),
    "list.filter": ("len(messages.filter(lambda m: m.mq.status == 'error'))", OPERATIONS["NACK"]),
    "list of a class": ("len(messages[BlipMQPublish])", OPERATIONS["PUBLISH"]),
    "list.sr": ("len(messages.sr()[0])", ANSWERED),
    "list.sessions": ("len(messages.sessions())", 2 * CONNECTIONS),
    "list.make_table": (
        "'39290' in printed(lambda: messages[:17].make_table(lambda m: (m.mq.op, m.mq.src_port, m.time)))", True,
    ),
    "list.plot": (
        "import matplotlib\nmatplotlib.use('Agg')\n"
        "len(publishes.plot(lambda m: (float(m.time), m.mq.body_len))[0].get_xdata())", OPERATIONS["PUBLISH"],
    ),
    "list slices and sums": ("len(messages[:5] + messages[5:])", MESSAGES),
    "list.hexdump": ("'first' in printed(publishes[:1].hexdump)", True),
    "packet.summary": ("publish.summary()", "127.0.0.1:39290 > 127.0.0.1:5555 BlipMQ PUBLISH q1 id=4 5 B"),
    "packet.show": ("[x.split()[-1] for x in publish.show(dump=True).splitlines() if 'topic ' in x]", ["b'q1'"]),
    "packet.sprintf": ("publish.sprintf('%BlipMQPublish.topic% %BlipMQ.correlation_id%')", "b'q1' 4"),
    "class in packet": ("BlipMQPublish in publish, BlipMQAuth in publish", (True, False)),
    "haslayer, getlayer": ("bool(publish.haslayer(BlipMQ)), publish.getlayer(BlipMQPublish).qos", (True, 1)),
    "packet[class].field": ("publish[BlipMQPublish].body", b"first"),
    "packet[TCP]": ("publish[TCP].sport, publish[TCP].dport", (39290, 5555)),
    "packet.time": ("round(float(publish.time - messages[0].time), 6)", 0.000838),
    "packet.answers": ("reply, = [m for m in messages if m.answers(messages[0])]\nreply.mq.first_packet", 6),
    "packet.command": ("bytes(eval(publish.command())) == bytes(publish)", True),
    "packet.copy and edit": (
        "edited = publish.copy()\nedited[BlipMQPublish].topic = 'q22'\nbytes(edited).find(b'q22') > 0", True,
    ),
    "bytes, raw, len": ("bytes(publish) == raw(publish) == publish.original, len(publish)", (True, 23)),
    "dissect bytes": ("BlipMQ(bytes(publish))[BlipMQPublish].topic", b"q1"),
    "build in IP/TCP": ("(IP() / TCP(dport=5555) / BlipMQ() / BlipMQPing())[BlipMQ].frame_type", 7),
    "fuzz": ("bytes(fuzz(BlipMQ() / BlipMQPing()))[4]", 7),
    "ls": ("printed(lambda: ls(BlipMQPublish)).count('topic') >= 1", True),
    "wrpcap, rdpcap": (
        "wrpcap(f'{T}/p.pcap', publishes)\n"
        "len(sniff(offline=f'{T}/p.pcap', session=MqSession, quiet=True)[BlipMQPublish])",
        OPERATIONS["PUBLISH"],
    ),
    "bind_layers": (
        "bind_layers(TCP, BlipMQ, dport=7777)\nsegment = TCP(bytes(TCP(dport=7777) / BlipMQ() / BlipMQPing()))\n"
        "split_layers(TCP, BlipMQ, dport=7777)\nBlipMQPing in segment", True,
    ),
    "pickle": ("bytes(pickle.loads(pickle.dumps(publish))) == bytes(publish)", True),
    "a name in another case": ("BlipMQ(frame_type='ping').frame_type", 7),
    "a class with its newer forms": (
        "forms = [f'pcaps/msgq/{form}_session.pcap' for form in ('flat', 'split', 'json')]\n"
        "sends = [m for m in sniff(offline=forms, session=MqSession, quiet=True) if m.mq.op == 'send']\n"
        "{m.mq.dialect for m in sends if MsgQSend in m} == {m.mq.dialect for m in sends}, "
        "all(MsgQSend in m for m in sends)", (True, True),
    ),
    "_repr_html_": ("messages._repr_html_().startswith('<')", True),
}  # fmt: skip
ANALYST: dict[str, tuple[str, Any]] = {
    "pandas value_counts": ("df['op'].value_counts().to_dict()", dict(OPERATIONS)),
    "pandas groupby": ("int(df.groupby('op')['body_len'].sum()['PUBLISH'])", BODY_BYTES),
    "pandas resample": ("int(df.set_index('ts').resample('1s').size().sum())", MESSAGES),
    "pandas quantile": (
        "pings = mqpcap.read(C, 'exchanges', filter='op == PING').to_pandas()\nlen(pings), "
        "bool(pings['latency_ns'].quantile(.5) <= pings['latency_ns'].quantile(.95))", (OPERATIONS["PING"], True),
    ),
    "pandas pivot_table": (
        "int(df.pivot_table(index='op', columns='direction', values='frame_len', aggfunc='count').loc['ACK', 'c2s'])",
        TRUTH["counts"]["c2s"]["ACK"],
    ),
    "pandas merge by keys": (
        "exchanges = mqpcap.read(C, 'exchanges')\nmqpcap.join(exchanges, table).num_rows", MESSAGES - ANSWERED,
    ),
    "pandas merge_asof": (
        "asked = df[df.op == 'POLL'][['ts', 'connection_id']]\n"
        "given = df[(df.op == 'PUBLISH') & (df.direction == 's2c')]\n"
        "joined = pd.merge_asof(given, asked.assign(asked=asked.ts), on='ts', by='connection_id')\n"
        "int(joined.asked.notna().sum())", OPERATIONS["PUBLISH"] - PUBLISHED,
    ),
    "pandas read_parquet": ("len(pd.read_parquet(f'{T}/tables/messages'))", MESSAGES),
    "DuckDB on Parquet": (
        "duckdb.sql(f\"from '{T}/tables/messages/*/*.parquet' select count(*) where op = 'PUBLISH'\").fetchall()",
        [(OPERATIONS["PUBLISH"],)],
    ),
    "DuckDB on a table": ("duckdb.from_arrow(table).aggregate('sum(body_len)::int').fetchall()", [(BODY_BYTES,)]),
    "DuckDB percentiles": (
        "pings = sorted(mqpcap.read(C, 'exchanges', filter='op == PING')['latency_ns'].to_pylist())\n"
        "duckdb.sql(f\"select quantile_disc(latency_ns, .5) from '{T}/tables/exchanges/*/*.parquet' "
        "where op = 'PING'\").fetchall() == [(pings[7],)]", True,
    ),
    "DuckDB time_bucket": (
        "duckdb.sql(f\"select sum(n)::int from (select time_bucket(interval 1 second, ts), count(*) n from "
        "'{T}/tables/messages/*/*.parquet' group by 1)\").fetchall()", [(MESSAGES,)],
    ),
    "Polars lazy": (
        "pl.scan_parquet(f'{T}/tables/messages/*/*.parquet').filter(pl.col('op') == 'NACK').collect().height",
        OPERATIONS["NACK"],
    ),
    "Polars group_by_dynamic": (
        "pl.from_arrow(table).sort('ts').group_by_dynamic('ts', every='1s').agg(pl.len())['len'].sum()", MESSAGES,
    ),
    "pyarrow dataset": (
        "ds.dataset(f'{T}/tables/messages', partitioning='hive').count_rows(filter=pc.field('op') == 'AUTH')",
        OPERATIONS["AUTH"],
    ),
    "pyarrow group_by": (
        "dict(zip(*table.group_by('op').aggregate([([], 'count_all')]).to_pydict().values()))", dict(OPERATIONS),
    ),
    "a filter while reading": (
        "mqpcap.read(C, filter='op == PUBLISH', columns=['op']).num_rows", OPERATIONS["PUBLISH"],
    ),
    "bytes and file objects": (
        "with open(C, 'rb') as file: rows = mqpcap.read(file).num_rows\n"
        "rows, mqpcap.read(Path(C).read_bytes()).num_rows", (MESSAGES, MESSAGES),
    ),
    "with open(...)": ("with mqpcap.open(C) as capture: rows = capture.messages.num_rows\nrows", MESSAGES),
    "batches": ("sum(batch.num_rows for batch in mqpcap.open(C).batches())", MESSAGES),
    "a row to its packets": (
        "capture = mqpcap.open(C)\n[p.summary() for p in [capture.packet(df.iloc[0])]][0].split()[-2]", "HELLO",
    ),
    "the verdict": ("mqpcap.info(C)[0].verdict().split(':')[0]", "whole"),
}  # fmt: skip


def printed(call: Any) -> str:
    """What a call writes to stdout."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        call()
    return text.getvalue()


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the lines use."""
    namespace: dict[str, Any] = {
        "C": "pcaps/blipmq/qos1.pcap", "Path": Path, "T": str(tmp_path_factory.mktemp("habits")), "printed": printed,
    }  # fmt: skip
    exec(PRELUDE, namespace)
    return namespace


FIRST_TRIES: dict[str, tuple[str, Any]] = {
    "a column of a row": ("next(mqpcap.show(C, 'op == PUBLISH')).op", "PUBLISH"),
    "a field of a row": ("[next(mqpcap.show(C, 'op == PUBLISH'))[x] for x in ('topic', 'blipmq.topic', 1)]",
                         ["q1", "q1", "blipmq"]),
    "a protocol as an attribute": ("mqpcap.open(C).blipmq.num_rows", MESSAGES),
    "a table as an item": ("mqpcap.open(C)['messages'].num_rows", MESSAGES),
    "a wrong attribute": (
        "try:\n    mqpcap.open(C).to_pandas()\nexcept AttributeError as error: text = str(error)\n"
        "'.messages.to_pandas()' in text", True,
    ),
    "by and metric as text": ("mqpcap.stats(C, by='op', metric='count').column_names[:2]", ["op", "messages"]),
    "a report that there is not": (
        "try:\n    mqpcap.stats(C, 'latency')\nexcept mqpcap.QueryError as error: text = str(error)\n"
        "'slowest' in text", True,
    ),
    "print info": ("str(mqpcap.info(C)[0])[:15]", "<mqpcap.info of"),
    "print a comparison": ("str(mqpcap.diff(C, C)).partition(': ')[0]", "<mqpcap.diff of pcaps/blipmq/qos1.pcap and "
                           "pcaps/blipmq/qos1.pcap"),
    "print a trace": ("str(mqpcap.trace(C, at=12)[0]).splitlines()[0].split()[0]", "published"),
    "anonymise at once": ("mqpcap.extract(C, f'{T}/anonymous.pcapng', anonymise=True).packet_count > 0", True),
    "explain a packet": ("mqpcap.explain(C, 12)[0].result.best.operation", "PUBLISH"),
    "follow a name": ("len(list(mqpcap.follow(C, 'c1').messages))", len(TRUTH["connections"][0]["events"])),
    "one column as text": ("mqpcap.read(C, columns='op').num_columns", 1),
    "a field that Scapy has the word of": (
        "try:\n    FqMessage(route='a')\nexcept AttributeError as error: text = str(error)\n"
        "text.endswith('mean route_?')", True,
    ),
}  # fmt: skip
"""Lines that users try who have read no page."""


@pytest.mark.parametrize("habit", [*SCAPY, *ANALYST, *FIRST_TRIES])
def test_a_habit_works(habit: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # Scapy's split_layers also drops the layer's own port.
    monkeypatch.setattr(BlipMQ, "_overload_fields", BlipMQ._overload_fields.copy())
    lines, expected = (SCAPY | ANALYST | FIRST_TRIES)[habit]
    *before, last = lines.split("\n")

    namespace = dict(names)
    exec("\n".join(before), namespace)
    assert eval(last, namespace) == expected


def test_there_are_62_habits() -> None:
    assert len(SCAPY | ANALYST) == len(SCAPY) + len(ANALYST) == 62
