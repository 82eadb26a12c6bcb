"""The layers without Scapy: what the command line reads captures with."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqpcap.cli import main
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled

PROGRAMS = """
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled

for protocol in protocols().values():
    program = compiled(protocol)
    print([getattr(program, name) for name in program.__slots__])
"""

COMMAND = """
import atexit, sys
from mqpcap.cli import main

atexit.register(lambda: print("scapy" in sys.modules, file=sys.stderr))
main(prog_name="main")
"""


# What a short command must not pay for, by what would import it.
COSTLY = (
    "scapy", "pandas", "dateutil",  # pyarrow, of every list
    "numpy.random", "pydoc",  # pyarrow, for documentation
    "concurrent.futures", "logging", "rich", "pyarrow.parquet", "pyarrow.dataset",
)  # fmt: skip


def said_by(code: str) -> str:
    code = "import numpy, sys; numpy.set_printoptions(threshold=sys.maxsize)\n" + code
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_programs_are_the_same_with_and_without_scapy() -> None:
    assert {len(compiled(p).ops) > 8 for p in protocols().values()} == {True}

    without = said_by("import mqpcap.schema.scapy_stub\n" + PROGRAMS + "\nassert 'scapy' not in sys.modules")

    assert without == said_by(PROGRAMS + "\nassert 'scapy' in sys.modules")


@pytest.mark.parametrize(
    "words",
    [
        ["show", "-q", "-v", "-x", "blipmq/handshake.pcap", "fq/node_client.pcap", "msgq/flat_typed.pcap"],
        ["show", "-q", "--json", "flymq/schema.pcap", "kokaq/doc_session.pcap"],
        ["explain", "-q", "flymq/fetch.pcap", "--at", "130"],
        ["protocols", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_the_command_line_says_the_same_without_scapy(words: list[str], pcaps: Path) -> None:
    words = [str(pcaps / word) if word.endswith(".pcap") else word for word in words]

    alone = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False)

    assert (alone.returncode, alone.stderr.splitlines()[-1:]) == (0, ["False"])
    assert alone.stdout == CliRunner().invoke(main, words).stdout != ""


@pytest.mark.parametrize("words", ["show -q", "show -q --unanswered", "info -q --json"])
def test_a_short_command_imports_nothing_costly(words: str, pcaps: Path) -> None:
    command = COMMAND.replace('"scapy" in sys.modules', f"sorted(sys.modules.keys() & set({COSTLY!r}))")
    arguments = [*words.split(), str(pcaps / "blipmq/qos1.pcap")]

    ended = subprocess.run([sys.executable, "-c", command, *arguments], capture_output=True, text=True, check=True)

    assert ended.stderr.splitlines()[-1:] == ["[]"]


def test_a_class_without_scapy_says_so_when_used() -> None:
    tried = (
        "import mqpcap.schema.scapy_stub; from mqpcap.protocols.blipmq import BlipMQPublish\n"
        "try: BlipMQPublish(topic=b'orders')\n"
        "except ImportError as error: print(error)"
    )

    assert "BlipMQPublish" in said_by(tried) and "without Scapy" in said_by(tried)


VALUES = """
from mqpcap.schema import fields as wire
from mqpcap.schema import message
from mqpcap.protocols import protocols

def classes(cls):
    return [cls, *(x for sub in cls.__subclasses__() for x in classes(sub))]

assert protocols()
for cls in sorted(classes(message.Message), key=lambda cls: cls.__name__):
    if "dispatch_hook" in vars(cls):  # made into another class, of which one asks Scapy only
        continue
    for values in ({}, {f.name: 1 + i for i, f in enumerate(cls.fields_desc) if isinstance(f, wire.Number)}):
        message = cls()
        message.fields.update(values)
        for f in cls.fields_desc:
            is_nested = isinstance(f, wire.Nested)
            said = () if is_nested else (message.getfieldval(f.name), f.default)
            print(message.name, f.name, *said, bool(f.islist), bool(f.holds_packets))
        try:
            message.getfieldval("nobody")
        except AttributeError as error:
            print(error)
"""


def test_fields_say_the_same_with_and_without_scapy() -> None:
    without = said_by("import mqpcap.schema.scapy_stub\n" + VALUES + "\nassert 'scapy' not in sys.modules")

    assert without == said_by(VALUES + "\nassert 'scapy' in sys.modules") != ""
