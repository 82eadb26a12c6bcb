"""The types of message classes for mypy: as the classes are, and known to a user's program."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from running import environment
from scapy_stubs import STUBS, stubs

import mqpcap

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
"""


def test_the_types_are_those_of_the_classes() -> None:
    assert STUBS.read_text(encoding="utf-8") == stubs(), "python tests/support/scapy_stubs.py --write"


def test_a_program_is_checked(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
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
    ]
