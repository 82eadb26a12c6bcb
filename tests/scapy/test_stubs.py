"""The types of message classes for mypy: as the classes are, and known to a user's program."""

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import environment
from scapy_stubs import STUBS, stubs

import mqpcap
from mqpcap.protocols import protocols
from mqpcap.query import WORDS
from mqpcap.reading import FilterOptions, ReadingOptions, checked_choices

PACKAGES = Path(mqpcap.__file__).parent.parent
MYPY_PATH = {} if PACKAGES.name == "site-packages" else {"MYPYPATH": str(PACKAGES)}
"""An installed package is found without it, and mypy refuses site-packages there."""
MYPY_CACHE = Path(__file__).resolve().parents[2] / ".mypy_cache" / "program"
PROGRAM = """
from mqpcap.scapy import *
import mqpcap.scapy

message = BlipMQPublish(topic="orders", qos=1)
reveal_type(message.topic)
reveal_type(FlyMQ(flags="compressed").flags)
message.topic = "other"
message.topic = 7
BlipMQPublish(topik="orders")
mqpcap.scapy.FqAuth(password=b"x")
mqpcap.stats("a.pcap", metrics="count")
mqpcap.show("a.pcap", since="+1s", decode_as={9092: "flymq"})
mqpcap.read("a.pcap", fliter="op")
recording = mqpcap.open("a.pcap")
recording.mesages
recording.messages
"""


def test_the_types_are_those_of_the_classes() -> None:
    assert STUBS.read_text(encoding="utf-8") == stubs(), "python tests/support/scapy_stubs.py --write"


def test_a_program_is_checked(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    tables = "".join(f"recording.{name}\n" for name in protocols())  # a table for each protocol
    (tmp_path / "program.py").write_text(PROGRAM + tables)
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", MYPY_CACHE, "program.py"],
        cwd=tmp_path, env=environment(**MYPY_PATH), capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip

    assert [line.partition(": ")[2] for line in said if "defined in" not in line] == [
        'note: Revealed type is "bytes"',
        'note: Revealed type is "int"',
        'error: Incompatible types in assignment (expression has type "int", variable has type "bytes | str | None")'
        "  [assignment]",
        'error: Unexpected keyword argument "topik" for "BlipMQPublish"; did you mean "topic"?  [call-arg]',
        'error: Unexpected keyword argument "metrics" for "stats"; did you mean "metric"?  [call-arg]',
        'error: Unexpected keyword argument "fliter" for "read"; did you mean "filter"?  [call-arg]',
        'error: "Recording" has no attribute "mesages"; maybe "_message"?  [attr-defined]',
    ]


def test_pyright_checks_it_too(tmp_path: Path) -> None:
    """Scapy's metaclass has a ``__call__`` that gives Any, after which pyright looks at no field."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    said = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout)

    errors = [x["range"]["start"]["line"] for x in said["generalDiagnostics"] if x["severity"] == "error"]
    wrong = ("message.topic = 7", "BlipMQPublish(topik", "mqpcap.stats(", "mqpcap.read(", "recording.mesages")
    assert errors == [i for i, line in enumerate(PROGRAM.splitlines()) if line.startswith(wrong)]


def test_the_options_of_calls_are_those_that_are_read() -> None:
    read = {name for name, x in inspect.signature(checked_choices).parameters.items() if x.kind is not x.VAR_KEYWORD}

    assert ReadingOptions.__annotations__.keys() == read
    assert FilterOptions.__annotations__.keys() == read | {"progress", "notes"} | set(WORDS)
