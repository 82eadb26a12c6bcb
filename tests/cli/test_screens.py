"""What commands look like on a terminal, and what a shell completes."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import click
import pytest
from running import COMMAND, ROOT, environment, run

from mqpcap.cli.lines import Part, fitted

QOS1 = "pcaps/blipmq/qos1.pcap"
ESCAPES = re.compile(r"\x1b\[[\d;]*m")
SAMPLES = [QOS1, "pcaps/kokaq/doc_session.pcap", "pcaps/fq/session.pcap", "pcaps/faults/fq_snapped.pcap"]


def on_terminal(width: int, *arguments: str, colours: bool = False) -> list[str]:
    """The lines that a command writes to a pseudo-terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = environment(TERM="xterm", COLUMNS="", LINES="")
    if colours:
        del env["NO_COLOR"]
    command = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # on Linux reading a terminal that nobody writes to any more is an error
        while some := os.read(ours, 65536):
            said += some
    os.close(ours)
    assert command.wait(60) == 0
    return said.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "command",
    [
        ("info", "-q", "-u", QOS1), ("protocols",), ("explain", "-q", "-u", "pcaps/flymq/core.pcap", "--at", "10"),
        ("stats", "-q", "--delays", "pcaps/flymq/core.pcap"), ("stats", "-q", "--talkers", "pcaps/flymq"),
        ("stats", "-q", "--by", "op,topic,client,server,status", "pcaps/flymq/core.pcap"),
        ("show", "--op", "PUBLIS", QOS1),
    ],
    ids=lambda command: " ".join(command[:3]),
)  # fmt: skip
def test_every_screen_fits_80_columns(command: tuple[str, ...]) -> None:
    """What is wider a terminal breaks inside of words."""
    said = on_terminal(80, *command)

    assert said
    assert max(map(len, said)) <= 80


def test_a_line_without_room_has_no_half_of_a_latency() -> None:
    parts = [Part("12:00", is_fixed=True), Part("bind"), Part("=> #110 ok in 100.658 ms")]

    assert [part.text for part in fitted(parts, 30)] == ["12:00", "bind", "=> #110 ok"]


def test_one_long_name_does_not_pull_a_table_apart() -> None:
    said = on_terminal(160, "stats", "-q", "--producers", "pcaps/fq/session.pcap")

    assert max(map(len, said)) < 120


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", SAMPLES)
def test_lines_fit_a_terminal_and_are_all_there(name: str, width: int) -> None:
    piped = run("show", "-q", "-u", name).stdout.splitlines()

    heading, *said = on_terminal(width, "show", "-q", "-u", name)

    assert len(said) == len(piped)
    assert max(map(len, said)) <= width
    assert heading.endswith(", where a line says no other")
    for line, whole in zip(said, piped, strict=True):
        assert line[:29] == whole[:29]  # time, packet and connection stay
        words = re.findall(r"\S+", line)
        assert all(word.endswith("...") or word in whole for word in words), "nothing is cut inside a word"


def test_protocol_and_server_are_told_once_where_there_is_one() -> None:
    heading, *said = on_terminal(160, "show", "-q", "-u", QOS1)

    assert heading == "blipmq/v1 at 127.0.0.1:5555, where a line says no other"
    assert not [line for line in said if "blipmq" in line or ":5555" in line]
    ways = {re.search(r" (->|<-) ", line).start() for line in said}  # type: ignore[union-attr]  # each has one
    assert len(ways) == 1, "columns align"


def test_a_line_with_another_server_says_so() -> None:
    """doc_session: the second connection's server is on port 4242."""
    said = on_terminal(200, "show", "-q", "-u", "pcaps/kokaq/doc_session.pcap")

    others = [line for line in said if "127.0.0.1:4242  kokaq/doc" in line]
    assert others and all(" c2 " in line for line in others)


def test_fitting_leaves_out_the_least_telling_first() -> None:
    parts = [Part("12:00", is_fixed=True), Part("PUBLISH"), Part("id=7", rank=6), Part("body", rank=2), Part("a b c d")]

    assert [part.text for part in fitted(parts, 40)] == ["12:00", "PUBLISH", "id=7", "body", "a b c d"]
    assert [part.text for part in fitted(parts, 30)] == ["12:00", "PUBLISH", "body", "a b c d"]
    assert [part.text for part in fitted(parts, 23)] == ["12:00", "PUBLISH", "a b c d"]


@pytest.mark.parametrize(
    "command", [("show", "-q", "-u", "-c", "5", QOS1), ("explain", "-q", "-u", QOS1, "--at", "12")]
)
def test_colour_is_always_auto_or_never(command: tuple[str, ...]) -> None:
    plain = run(*command).stdout
    coloured = run(*command, "--color", "always").stdout

    assert "\x1b[" not in plain
    assert "\x1b[" in coloured and ESCAPES.sub("", coloured) == plain
    assert "\x1b[" in "".join(on_terminal(120, *command, colours=True))
    assert "\x1b[" not in "".join(on_terminal(120, *command))  # NO_COLOR
    assert "\x1b[" not in "".join(on_terminal(120, *command, "--color", "never", colours=True))


@pytest.mark.parametrize(
    "command", [("explain", "-q", "-u", "--readings", QOS1, "--at", "12"), ("info", "-q", "-u", QOS1),
                ("show", "-q", "-u", "-c", "5", QOS1)], ids=lambda command: command[0],
)  # fmt: skip
def test_coloured_lines_break_where_plain_ones_do(command: tuple[str, ...]) -> None:
    coloured = on_terminal(60, *command, colours=True)
    plain = on_terminal(60, *command)

    assert "\x1b[" in "".join(coloured) and "\x1b[" not in "".join(plain)
    assert [ESCAPES.sub("", line).rstrip() for line in coloured] == [line.rstrip() for line in plain]
    assert max(map(len, plain)) <= 60


def test_explain_names_the_reply_and_the_request() -> None:
    """qos1: packet 13 is a POLL that packet 15 answers with a message."""
    assert "  => #15 ok in 0.056 ms" in run("explain", "-u", QOS1, "--at", "13").stdout.splitlines()[0]
    assert "  <= #13 in 0.056 ms" in run("explain", "-u", QOS1, "--at", "15").stdout.splitlines()[0]
    assert '"exchange":{"state":"answered","latency_ns":56000,"reply_packet":15}' in (
        run("explain", "--json", QOS1, "--at", "13").stdout
    )


def test_explain_keeps_what_does_not_fit_behind_an_option() -> None:
    reply = ("--hex", "af 01 03 01 00000003 01 0000", "--protocol", "flymq", "--direction", "s2c")

    assert "\nnot: " not in run("explain", *reply).stdout
    assert "\nnot: " in run("explain", *reply, "--readings").stdout


# -- completion ----------------------------------------------------------------------------------------


def completed(*words: str) -> set[str]:
    """What bash is offered for the last word."""
    code = "from mqpcap.cli import main; main(prog_name='mqpcap')"
    env = environment(
        _MQPCAP_COMPLETE="bash_complete", COMP_WORDS=" ".join(("mqpcap", *words)), COMP_CWORD=str(len(words))
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return set(said.stdout.split())


def test_files_are_left_to_the_shell() -> None:
    for command in ("show", "info", "export", "explain"):
        assert completed(command, "pcaps/bl") == {"file,pcaps/bl"}
    assert completed("export", "--out", "ta") == {"dir,ta"}


def test_protocols_operations_and_interfaces_are_completed() -> None:
    assert completed("show", "--protocol", "f") == {"plain,flymq", "plain,fq"}
    assert completed("explain", "--protocol", "bl") == {"plain,blipmq"}
    assert completed("show", "--op", "POL") == {"plain,POLL"}
    assert completed("show", "--protocol", "kokaq", "--op", "acq") == {"plain,AcquirePeekLock"}
    assert completed("show", "-i", "lo") >= {"plain,lo"}
    assert {"plain,show", "plain,spark"} <= completed("s")


def test_what_was_typed_in_capitals_stays() -> None:
    """PU is the beginning of PUBLISH and PURGE_DLQ; with Push a shell would leave only P of it."""
    from mqpcap.cli.completion import one_of

    offered = one_of(("PUBLISH", "PURGE_DLQ", "Push", "Ping"))
    context, option = click.Context(click.Command("show")), click.Option(["--op"])

    assert [x.value for x in offered(context, option, "PU")] == ["PUBLISH", "PURGE_DLQ"]
    assert [x.value for x in offered(context, option, "pin")] == ["Ping"]


def test_fields_are_completed() -> None:
    from click import Context

    from mqpcap.cli import main
    from mqpcap.cli.completion import fields

    context = Context(main)
    names = {item.value for item in fields(context, main.params[0], "")}
    assert {"op", "destination", "latency_ns", "flymq.key", "fq.route", "msgq.lname"} <= names
    inside = {f"kokaq.metadata.{name}" for name in ("tag", "name", "value")}
    assert {item.value for item in fields(context, main.params[0], "kokaq.meta")} == inside


def test_bash_completes_rules_and_closed_sets(tmp_path: Path) -> None:
    """Bash cuts words at = before it asks, and puts what is offered behind the last one."""
    script = tmp_path / "mqpcap"
    script.write_text(f"#!{sys.executable}\nfrom mqpcap.cli import main\nmain(prog_name='mqpcap')\n")
    script.chmod(0o755)

    def offered(*words: str) -> list[str]:
        code = (
            'compopt() { :; }; eval "$(_MQPCAP_COMPLETE=bash_source mqpcap)"; COMP_WORDS=("$@");'
            'COMP_CWORD=$(($# - 1)); _mqpcap_completion mqpcap; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
        call = ["bash", "-c", code, "-", "mqpcap", *words]
        return subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.split()

    assert offered("show", "-d", "tcp.port", "==", "7000,f") == ["7000,flymq", "7000,fq"]
    assert offered("show", "-d", "tcp.port", "==", "909") == ["9092,flymq"]
    assert offered("show", "--decode-as", "=", "tcp.port", "==", "7000,m") == ["7000,msgq"]
    assert offered("show", "-d", "tcp.port", "==", "7000,fq", "--op", "stat") == ["status", "status_request"]
    assert offered("show", "--bodies", "n") == ["none"]
    assert offered("stats", "--by", "op,to") == ["op,topic"]
    assert offered("stats", "--metric", "co") == ["count"]
    assert offered("follow", "--raw", "c") == ["c2s"]
    assert offered("explain", "--protocol", "kokaq", "--dialect", "l") == ["lean"]
    for command in ("extract", "report"):
        assert completed(command, "--out", "x") == {"file,x"}
    assert completed("spark", "export", "pc") == {"file,pc"}


def test_the_completion_script_is_there_for_three_shells() -> None:
    code = "from mqpcap.cli import main; main(prog_name='mqpcap')"
    for shell in ("zsh", "fish"):
        env = environment(_MQPCAP_COMPLETE=f"{shell}_source")
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert "mqpcap" in said.stdout
    assert 'split -m 1 ","' in said.stdout, "in fish, too, values have commas"
