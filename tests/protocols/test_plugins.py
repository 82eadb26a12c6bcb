"""Protocols from packages: found by their entry points, checked, and read by everything that reads the others.

The package is the one that `notebooks/add_a_protocol.ipynb` writes, installed by pip into a virtual environment of its
own, which sees the packages of this one. Packages that cannot be used are unpacked into a folder.
"""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from site import getsitepackages
from venv import EnvBuilder

import pytest
from running import ROOT, environment, run

from mqpcap import queries
from mqpcap.protocols import COMMON_TABLES
from mqpcap.tables.schemas import TABLES

NOTEBOOK = json.loads((ROOT / "notebooks" / "add_a_protocol.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"]]
GENERIC = (
    "schema/test_agreement.py", "schema/test_reference.py", "schema/test_scapy_stub.py", "tables/test_schemas.py",
    "scapy/test_layers.py", "correlate/test_exchanges.py", "query/test_field_catalogue.py", "delta/test_tables.py",
    "query/test_filter_columns.py", "queries/test_questions.py",
)  # fmt: skip
"""Tests that take protocols from the registry."""
ASK = """
import sys
import mqpcap
from mqpcap import queries

for question in queries.questions():
    needed = {name: "127.0.0.1" for name, value in queries.PARAMETERS.get(question, {}).items() if value is None}
    list(mqpcap.ask(question, sys.argv[1], **needed).lines())
    print(question)
"""
SCAPY = """
import sys
from mqpcap.scapy import MqSession
from scapy.sendrecv import sniff

for packet in sniff(offline=sys.argv[1], session=MqSession, quiet=True):
    print(type(packet.payload).__name__)
"""


@cache
def module_text() -> str:
    """The module that the notebook writes."""
    (cell,) = (cell for cell in CELLS if cell.startswith("%%writefile {FOLDER}/mq_relay.py\n"))
    return cell.partition("\n")[2]


def wheel_of(folder: Path, *modules: tuple[str, str]) -> Path:
    """A package with these modules (name, text), each an entry point."""
    wheel, info = folder / "mq_tried-1.0-py3-none-any.whl", "mq_tried-1.0.dist-info"
    points = "".join(f"p{i} = {name}\n" for i, (name, _) in enumerate(modules))
    with zipfile.ZipFile(wheel, "w") as package:
        for name, text in modules:
            package.writestr(f"{name}.py", text)
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: mq-tried\nVersion: 1.0\n")
        package.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        package.writestr(f"{info}/entry_points.txt", f"[mqpcap.protocols]\n{points}")
        package.writestr(f"{info}/RECORD", "")
    return wheel


def installed(folder: Path, *modules: tuple[str, str]) -> Path:
    """A folder with a package of these modules (name, text), each an entry point, as pip unpacks it."""
    target = folder / "site"
    with zipfile.ZipFile(wheel_of(folder, *modules)) as package:
        package.extractall(target)
    return target


def _pip(command: str, *words: object, python: str = sys.executable) -> None:
    options = "--no-index", "--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check"
    pip = sys.executable, "-m", "pip", "--python", python
    subprocess.run([*pip, command, *options, *map(str, words)], check=True)


def path_with(target: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{target}:{environment()['PYTHONPATH']}"}


@dataclass(frozen=True)
class Relay:
    """A virtual environment with the package, and a capture of it that the notebook's session writes."""

    folder: Path
    python: str

    def run(self, *words: object, cwd: Path = ROOT) -> str:
        """What a process of the environment's Python writes to stdout; it succeeds."""
        ended = subprocess.run(
            [self.python, *map(str, words)], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0 and "left out" not in ended.stderr, ended.stdout[-4000:] + ended.stderr
        return ended.stdout

    def command(self, *words: object) -> str:
        """The same of the command."""
        return self.run("-m", "mqpcap", *words)


def environment_in(folder: Path) -> Relay:
    """A virtual environment that sees the packages of this one."""
    EnvBuilder(symlinks=True, with_pip=False).create(folder / "venv")
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    seen = (f"import site; site.addsitedir({path!r})\n" for path in getsitepackages())
    (site / "outer.pth").write_text("".join(seen))
    return Relay(folder, str(folder / "venv" / "bin" / "python"))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Relay:
    made = environment_in(tmp_path_factory.mktemp("relay"))
    _pip("install", wheel_of(made.folder, ("mq_relay", module_text())), python=made.python)
    (cell,) = (cell for cell in CELLS if "SESSION = " in cell)
    made.run("-c", cell.partition('SESSION = """')[2].partition('"""')[0], cwd=made.folder)
    return made


def test_commands_know_it(relay: Relay) -> None:
    capture, out = relay.folder / "relay.pcap", relay.folder / "out"
    relay.command("export", "-q", capture, "--out", out)
    lines = relay.command("stats", capture, "--by", "protocol,op", "--csv").splitlines()

    assert (out / "relay").is_dir()
    assert sorted(line.split(",")[:3] for line in lines[1:]) == [
        ["relay", op, count]
        for op, count in (("DONE", "2"), ("GET", "2"), ("ITEM", "1"), ("PUT", "2"), ("REFUSED", "1"))
    ]
    assert "relay: Relay" in relay.command("protocols")
    assert relay.command("protocols", "relay", "--markdown").startswith("# relay: Relay\n")
    assert "-- relay has no dissector: ticket is a number of variable size" in relay.command("wireshark")
    assert len(relay.command("show", capture).splitlines()) == 8
    assert 'shelf = "tools"' in relay.command("explain", capture, "--at", "3")


def test_every_question_takes_its_tables(relay: Relay) -> None:
    out = relay.folder / "asked"
    relay.command("export", "-q", relay.folder / "relay.pcap", "--out", out)
    said = relay.run("-c", ASK, out)

    assert said.split() == [*queries.questions()]


def test_scapy_has_its_layers(relay: Relay) -> None:
    said = relay.run("-c", SCAPY, relay.folder / "relay.pcap")

    assert said.split() == ["RelayPut", "RelayDone"] * 2 + ["RelayGet", "RelayItem", "RelayGet", "RelayRefused"]


def test_the_generic_tests_hold_for_it(relay: Relay) -> None:
    """Agreement of both roads, what fuzz() builds, simulated exchanges, schemas, names, questions."""
    options = "-m", "pytest", "-v", "-n0", "-p", "no:cacheprovider", "-k", "relay or every or described", "--no-header"

    said = relay.run(*options, *(ROOT / "tests" / name for name in GENERIC))
    assert len(re.findall(r"\[relay.* PASSED", said)) >= 5


def test_the_steps_of_the_page_make_a_protocol(tmp_path: Path) -> None:
    """A folder with two files, installed by pip, and the commands that the page names."""
    pytest.importorskip("setuptools")
    page = (ROOT / "src/mqpcap/protocols/README.md").read_text(encoding="utf-8")
    package = tmp_path / "package"
    package.mkdir()
    for name, language in (("pyproject.toml", "toml"), ("mq_lines.py", "python")):
        (package / name).write_text(page.partition(f"```{language}\n")[2].partition("```")[0])
    made = environment_in(tmp_path)
    _pip("install", "--no-build-isolation", package, python=made.python)
    data = page.partition("explain --hex ")[2].split()[0]

    assert made.command("protocols", "lines").startswith("lines: Lines\n")
    assert 'body = "LINE a\\n"' in made.command("explain", "--hex", data, "--protocol", "lines")
    assert made.run("-c", r"from mqpcap.scapy import Line; print(bytes(Line(body=b'LINE a\n')).hex())").strip() == data


def changed(text: str, **words: str) -> str:
    """The module with other names, so that it can be installed beside the first."""
    for old, new in words.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_there\n", "ModuleNotFoundError: No module named 'not_there'"),
        ("x = 1\n", "AttributeError: module 'mq_other' has no attribute 'PROTOCOL'"),
        (changed(module_text(), Relay="Other", name='"relay"'), "SyntaxError: "),
        (changed(module_text(), Relay="Other").replace('name="relay"', 'name="blipmq"'),
         "ProtocolError: protocol blipmq is of mqpcap.protocols.blipmq and of mq_other"),
        (changed(module_text(), Relay="Other").replace('name="relay"', 'name="messages"'),
         "ProtocolError: mq_other: 'messages' cannot be the name of a protocol and its table"),
        (changed(module_text(), Relay="Other").replace('name="relay"', 'name="../x"'),
         "ProtocolError: mq_other: '../x' cannot be the name of a protocol and its table"),
        (module_text().replace('name="relay"', 'name="other"').replace("class RelayPut", "class MqttPublish")
         .replace("RelayPut", "MqttPublish"),
         "ProtocolError: MqttPublish is of mqpcap.protocols.mqtt and of mq_other"),
        (changed(module_text(), Relay="Other").replace('name="relay"', 'name="other"').replace(
            'Text("why", prefix=VarUint)', 'Text("why", length="later")'), "ProtocolError: "),
    ],
    ids=["import", "no protocol", "syntax", "name twice", "common table", "no name", "class twice", "no compile"],
)  # fmt: skip
def test_one_that_cannot_be_used_is_left_out_with_one_line(
    text: str, reason: str, relay: Relay, tmp_path: Path
) -> None:
    """The others go on."""
    target = installed(tmp_path, ("mq_other", text), ("mq_relay", module_text()))
    ended = run("show", "-q", relay.folder / "relay.pcap", **path_with(target))

    assert ended.exit_code == 0
    assert len(ended.stdout.splitlines()) == 8
    (line,) = [line for line in ended.stderr.splitlines() if "not compiled" not in line]
    assert line.startswith(f"the protocol of mq_other is left out: {reason}")


def test_a_package_is_looked_up_only_where_a_protocol_is_needed(tmp_path: Path) -> None:
    target = installed(tmp_path, ("mq_loud", "import sys; sys.stderr.write('loaded')\n"))
    variables = path_with(target)

    assert run("--help", **variables).stderr == run("--version", **variables).stderr == ""
    assert "loaded" in run("protocols", **variables).stderr


def test_names_of_common_tables_are_those_of_the_tables() -> None:
    assert sorted(COMMON_TABLES) == sorted(TABLES)
