"""Wrong options of calls and methods: one line with the option, the nearest one, and all that the call has."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqpcap
import mqpcap.spark
from mqpcap.scapy import MqSession

QOS1 = str(Path(__file__).resolve().parents[1] / "pcaps/blipmq/qos1.pcap")
READING = ("decode_as", "show_secrets", "bodies", "max_memory_bytes", "jobs", "keylog", "one")
WORDS = ("protocol", "op", "client", "server", "connection", "topic", "grep", "status", "flawed", "unanswered",
         "slower_than", "since", "until")  # fmt: skip
CALL = (*READING, "progress", "notes")
STATS = ("path", "report", "by", "metric", "interval", "sort", "reverse", "having", "top", "filter", *CALL, *WORDS)
EXPORT = ("path", "out", "filter", "append", "finish", "rebuild", "remove", "allow_missing", "prepare", *CALL, *WORDS)
TYPOS: dict[str, tuple[Callable[..., Any], str, str | None, tuple[str, ...]]] = {
    "stats": (mqpcap.stats, "intervall", "interval", STATS),
    "stats metrics": (mqpcap.stats, "metrics", "metric", STATS),
    "live_stats": (mqpcap.live_stats, "evry", "every",
                   ("interface", "report", "every", "bpf", "by", "metric", "top", "filter", *CALL, *WORDS)),
    "export": (mqpcap.export, "oout", "out", EXPORT),
    "extract": (mqpcap.extract, "splt", "split",
                ("path", "out", "filter", "connections", "anonymise", "split", *CALL, *WORDS)),
    "explain": (mqpcap.explain, "connetion", "connection",
                ("path", "at", "pairing", *CALL, "connection", "direction", "offset", "hex", "protocol", "dialect")),
    "show": (mqpcap.show, "fliter", "filter", ("path", "filter", *CALL, *WORDS)),
    "messages": (mqpcap.messages, "unanswerd", "unanswered", ("path", "filter", *CALL, *WORDS)),
    "follow": (mqpcap.follow, "conection", "connection", ("path", "filter", *CALL, *WORDS)),
    "trace": (mqpcap.trace, "mesage", "message", ("path", "message", "at", *CALL)),
    "info": (mqpcap.info, "bodeis", "bodies", ("path", *CALL)),
    "report": (mqpcap.report, "oout", "out", ("path", "out", *CALL)),
    "diff": (mqpcap.diff, "befor", "before", ("before", "after", "filter", *CALL, *WORDS)),
    "read": (mqpcap.read, "colums", "columns",
             ("path", "table", "filter", "columns", "progress", "notes", *READING)),
    "open": (mqpcap.open, "decod_as", "decode_as",
             ("path", *(name for name in READING if name != "jobs"), "progress")),
    "lake": (mqpcap.lake, "directry", "directory", ("directory",)),
    "wireshark": (mqpcap.wireshark, "instal", "install", ("install",)),
    "fields": (mqpcap.fields, "nmae", "name", ("name",)),
    "samples": (mqpcap.samples, "foldr", "folder", ("folder",)),
    "join": (mqpcap.join, "prt", "part", ("pairs", "messages", "part")),
    "ProgressBar": (mqpcap.ProgressBar, "pth", "path", ("path",)),
    "Recording.batches": (mqpcap.open(QOS1).batches, "tabel", "table", ("table", "filter", "columns", "notes")),
    "Recording.packet": (mqpcap.open(QOS1).packet, "prt", "part", ("row", "part")),
    "MqSession": (MqSession, "bodys", "bodies",
                  ("options", "decode_as", "show_secrets", "bodies", "max_memory_bytes", "keylog", "supersession")),
    "stream_to_lake": (mqpcap.spark.stream_to_lake, "permisive", "permissive",
                       ("spark", "inputs", "lake", "finish", "permissive", "every", "report", *READING)),
    "a word of nobody": (mqpcap.info, "x", None, ("path", *CALL)),
}  # fmt: skip


@pytest.mark.parametrize("case", TYPOS)
def test_a_wrong_option_is_named_with_the_nearest_and_all_of_the_call(case: str) -> None:
    call, typo, meant, names = TYPOS[case]
    with pytest.raises(TypeError) as error:
        call(**{typo: 1})

    words = re.fullmatch(r"'(\w+)' is no option of [\w.]+; (?:did you mean (\w+)\? T|t)here are (.*)", str(error.value))
    assert words is not None
    assert (words[1], words[2], tuple(words[3].split(", "))) == (typo, meant, names)


def test_every_call_that_is_promised_is_in_the_table() -> None:
    calls = {name for name in mqpcap.__all__ if callable(getattr(mqpcap, name))}
    errors_and_values = {"CaptureError", "MqpcapError", "QueryError", "Recording", "protocols"}
    assert calls - errors_and_values - {"ask"} == TYPOS.keys() & calls  # `ask` takes the parameters of a question


def test_a_wrong_parameter_of_a_question_is_named_with_those_that_it_has() -> None:
    with pytest.raises(mqpcap.MqpcapError, match="slowest has no parameter limt; it has n"):
        mqpcap.ask("slowest", QOS1, limt=3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda out: mqpcap.extract(QOS1, out, split="topik"), "--split: 'topik' is neither connection nor topic nor"),  # type: ignore[arg-type]  # wrong
        (lambda out: mqpcap.extract(QOS1, out, split=0), "--split: 0 is neither connection nor topic nor a number"),
        (
            lambda _: mqpcap.explain(QOS1, connection="c1", direction="x", offset=0),
            "--direction is c2s or s2c, not 'x'",
        ),  # type: ignore[arg-type]  # wrong
        (lambda _: mqpcap.live_stats("lo", every="0s"), "--every: a time is longer than nothing"),
        (lambda _: mqpcap.live_stats("lo", every="soon"), "--every: 'soon' is no time"),
    ],
)
def test_a_value_that_means_nothing_is_refused(call: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(mqpcap.MqpcapError, match=re.escape(said)):
        call(tmp_path / "out")
    assert not [*tmp_path.iterdir()]


def test_calls_go_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(mqpcap.info)) is mqpcap.info


@pytest.mark.parametrize(
    ("name", "said"),
    [("stats", "that is mqpcap.stats, with the path of the capture"), ("mesages", "did you mean messages?"),
     ("nothing", "its tables have: .messages.to_pandas(), .fq, .exchanges")],
)  # fmt: skip
def test_a_name_that_a_recording_does_not_have_leads_on(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"a recording has no {name!r}") + ".*" + re.escape(said)):
        getattr(mqpcap.open(QOS1), name)
