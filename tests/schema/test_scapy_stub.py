"""The layers without Scapy: what the command line reads captures with."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import scapy.fields
import scapy.packet
from click.testing import CliRunner

from mqpcap import explain as explanation
from mqpcap.cli import main
from mqpcap.protocols import protocols
from mqpcap.schema import fields as wire
from mqpcap.schema import message
from mqpcap.schema import scapy_stub as plain
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


# -- what the descriptions take from the base classes ---------------------------------------------------------


def taken(tree: ast.AST, *names: str) -> Iterator[str]:
    """Attributes of the variables of these names, and of super()."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of = ast.unparse(node.value)
            if of in names or of == "super()":
                yield node.attr


def taken_from_packet() -> set[str]:
    """What the kinds and ``explain`` take of the message they are given, and ``Message`` of itself and its base."""
    every = {*taken(ast.parse(inspect.getsource(wire) + inspect.getsource(message)), "pkt")}
    every |= {*taken(ast.parse(inspect.getsource(explanation)), "pkt", "cls()")}
    itself = ast.parse(inspect.getsource(message.Message))
    every |= {*taken(itself, "self", "cls", "pkt", "packet", "clone", "body", "layer", "item", "inner")}
    own = message.Message.__dict__.keys() - scapy.packet.Packet.__dict__.keys()
    beneath = {*taken(itself)} - {"__init__", "__init_subclass__"}
    kinds = {"randval", "__init__", "gives"}  # super() of a kind, not of a message
    return {x for x in every if not x.startswith("__")} - own - kinds - {"until"} | beneath


def taken_from_field() -> set[str]:
    """What those that have a kind take of it and no kind defines."""
    kinds = [x for x in vars(wire).values() if isinstance(x, type) and issubclass(x, wire.Kind)]
    defined = {name for cls in kinds for name in vars(cls)}
    both = ast.parse(inspect.getsource(wire) + inspect.getsource(message))
    every = {*taken(both, "field", "f", "kind", "measured", "part", "inner")}
    return every & {*vars(scapy.fields.Field), *vars(plain.Field)} - defined - {"copy"}  # of a message


def test_the_lists_are_what_the_descriptions_take() -> None:
    assert taken_from_packet() == plain.PACKET | plain.SCAPY_ONLY
    assert taken_from_field() == plain.FIELD


def test_scapy_has_what_the_lists_say() -> None:
    packet, field = scapy.packet.Packet(), scapy.fields.Field("a", None)

    assert {x for x in plain.PACKET | plain.SCAPY_ONLY if not hasattr(packet, x)} == set()
    assert {x for x in plain.FIELD if not hasattr(field, x)} == set()


def test_the_stand_in_has_what_the_lists_say() -> None:
    packet, field = plain.Packet(), plain.Field[object, object]("a", None, "!B")

    assert {x for x in plain.PACKET if not hasattr(packet, x)} == set()
    assert {x for x in plain.FIELD if not hasattr(field, x)} == set()
    for name in plain.SCAPY_ONLY:
        with pytest.raises(ImportError, match="Packet can do nothing here"):
            getattr(packet, name)


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
