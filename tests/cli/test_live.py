"""`mqpcap show` of what comes as it happens: pipes, files that grow, interfaces.

Nothing here waits for a time: a line has to come while the writer is silent, whenever that is.
"""

import os
import pty
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from live_broker import PONG, Broker, frame, until_listening
from made_tls import contexts
from running import COMMAND, ROOT, environment, run

import mqpcap
from mqpcap.capture import Window
from mqpcap.cli.live import EndOfInput, listening
from mqpcap.reading import Choices, Outcome

QOS1 = ROOT / "pcaps/blipmq/qos1.pcap"
DIALECTS = ROOT / "pcaps/kokaq/doc_session.pcap"
PATIENCE_S = 300
PATIENT_CODE = "from mqpcap.cli import live; live.DRAIN_S = 1200; from mqpcap.__main__ import main; main()"
PATIENT = [sys.executable, "-c", PATIENT_CODE]
"""The command, but after Ctrl-C it waits for a pipe's writer until that ends, as slow as it may be."""


def records(path: Path) -> tuple[bytes, list[bytes]]:
    """The header of a capture, and its packets."""
    data = path.read_bytes()
    packets, at = [], 24
    while at < len(data):
        size = 16 + struct.unpack_from("<I", data, at + 8)[0]
        packets.append(data[at : at + size])
        at += size
    return data[:24], packets


@contextmanager
def shown(
    *arguments: object, stdin: int | None = subprocess.PIPE, command: Sequence[str] = COMMAND
) -> "Iterator[subprocess.Popen[bytes]]":
    command = [*command, "show", "-u", *map(str, arguments)]
    show = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    guard = threading.Timer(PATIENCE_S, show.kill)
    guard.start()
    try:
        yield show
    finally:
        guard.cancel()
        show.kill()
        show.communicate()


def ended(show: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    stdout, stderr = show.communicate(timeout=PATIENCE_S)
    return show.returncode, stdout.decode(), stderr.decode()


def without_exchange(line: str) -> str:
    """A line without what is known of its exchange when it is shown."""
    return re.sub(r"  (=>|<=) .*$", "", line)


def line(show: "subprocess.Popen[bytes]") -> str:
    assert show.stdout is not None
    return show.stdout.readline().decode().rstrip("\n")


def put(show: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert show.stdin is not None
    show.stdin.write(data)
    show.stdin.flush()


def test_a_line_comes_while_the_pipe_is_silent() -> None:
    """The writer waits for the line of a message before it writes the packets behind it."""
    header, packets = records(QOS1)
    wanted = run("show", "-q", "-u", QOS1).stdout.splitlines()

    with shown("-") as show:
        put(show, header + b"".join(packets[:4]))
        first = line(show)
        put(show, b"".join(packets[4:6]))
        second = line(show)
        put(show, b"".join(packets[6:]))
        _, rest, _ = ended(show)

    said = [first, second, *rest.splitlines()]
    assert "HELLO" in first and "=>" not in first
    assert re.search(r"  <= #4 in 0\.051 ms$", second), "the reply's line tells packet and latency of its request"
    assert sorted(map(without_exchange, said)) == sorted(map(without_exchange, wanted))


@pytest.mark.parametrize("ends", [8, 40])
def test_a_line_of_a_connection_that_began_before_is_not_late(ends: int) -> None:
    """Where its SYN was not captured a side begins at what came by then: no 32 packets are waited for, as in a file."""
    header, packets = records(ROOT / "pcaps/flymq/core.pcap")
    late = packets[20 : 20 + ends]
    wanted = run("show", "-q", "-u", "-", stdin=header + b"".join(late)).stdout.splitlines()

    with shown("-") as show:
        put(show, header + b"".join(late))
        said = [line(show) for _ in wanted]
        code, rest, _ = ended(show)

    assert (code, rest) == (0, "")
    assert sorted(map(without_exchange, said)) == sorted(map(without_exchange, wanted))


def test_a_line_does_not_wait_until_the_dialect_is_certain() -> None:
    """Packets 4 and 6 are a request and a reply that two dialects write alike."""
    header, packets = records(DIALECTS)

    with shown("-") as show:
        put(show, header + b"".join(packets[:6]))
        first = line(show)
        put(show, b"".join(packets[6:]))
        code, rest, _ = ended(show)

    assert code == 0
    assert "#4 " in first
    assert [first, *rest.splitlines()][1:] == run("show", "-q", "-u", DIALECTS).stdout.splitlines()[1:]


def test_lines_come_while_a_writer_never_rests() -> None:
    """Packets at least every few milliseconds: a line waits for its look-ahead, not for a pause."""
    header, packets = records(QOS1)
    first = packets[:4]
    begin_ns = time.time_ns()
    stop = threading.Event()

    def stamped(packet: bytes) -> bytes:
        seconds, ns = divmod(time.time_ns(), 1_000_000_000)
        return struct.pack("<II", seconds, ns // 1000) + packet[8:]

    with shown("-") as show:
        put(show, header)

        def write() -> None:
            for packet in first:
                put(show, stamped(packet))
            while not stop.wait(0.002):
                put(show, stamped(packets[2]))  # the handshake's ACK, again and again

        writer = threading.Thread(target=write)
        writer.start()
        said = line(show)
        took_ns = time.time_ns() - begin_ns
        stop.set()
        writer.join()
        code, _, _ = ended(show)

    assert "HELLO" in said, f"after {took_ns / 1e9} s"
    assert code == 0


def test_a_growing_file_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    header, packets = records(QOS1)
    path = tmp_path / "growing.pcap"
    path.write_bytes(header)

    with shown("--follow", path, stdin=None) as show, path.open("ab", buffering=0) as file:
        file.write(b"".join(packets[:4]))
        first = line(show)
        file.write(b"".join(packets[4:6]) + packets[6][:20])
        second = line(show)
        file.write(packets[6][20:] + b"".join(packets[7:]))
        seen = [first, second, *(line(show) for _ in range(240))]
        show.send_signal(signal.SIGINT)
        code, rest, stderr = ended(show)

    assert (code, rest) == (0, "")
    assert sorted(map(without_exchange, seen)) == sorted(
        map(without_exchange, run("show", "-q", "-u", QOS1).stdout.splitlines())
    )
    assert stderr.splitlines()[-1].startswith("242 messages: 242 blipmq; flaws: none; 382 packets")


@pytest.mark.parametrize("rotation", ["moved", "cut", "counted", "timed", "in a folder"])
def test_a_file_is_followed_through_rotation(rotation: str, tmp_path: Path) -> None:
    """Every message of both files is shown, connections go on; a note tells of the second."""
    header, packets = records(QOS1)
    one, two = "a.pcap", "a.pcap"
    if rotation in ("counted", "timed"):
        one, two = ("a.pcap1", "a.pcap2") if rotation == "counted" else ("a-20251123.pcap", "a-20251124.pcap")
        (tmp_path / "a.pcap9").write_bytes(header + packets[0])  # of the last round, and no successor
    (tmp_path / one).write_bytes(header + b"".join(packets[:100]))
    wanted = [
        re.sub(r"#\d+ +", "", without_exchange(said)) for said in run("show", "-q", "-u", QOS1).stdout.splitlines()
    ]

    with shown("--follow", tmp_path if rotation == "in a folder" else tmp_path / one, stdin=None) as show:
        seen = [line(show)]
        if rotation in ("moved", "in a folder"):
            (tmp_path / one).rename(tmp_path / "old")
        (tmp_path / two).write_bytes(header)
        assert show.stderr is not None
        note = show.stderr.readline().decode()
        with (tmp_path / two).open("ab") as file:
            file.write(b"".join(packets[100:]))
        seen += [line(show) for _ in wanted[1:]]
        show.send_signal(signal.SIGINT)
        code, rest, stderr = ended(show)

    assert (code, rest) == (0, "")
    assert sorted(re.sub(r"#\d+ +", "", without_exchange(said)) for said in seen) == sorted(wanted)
    assert note == f"note: {tmp_path / one}: {'begun anew' if one == two else f'goes on in {tmp_path / two}'}\n"
    assert (stderr.count("\n"), stderr[:14]) == (1, "242 messages: ")


def test_follow_wants_one_plain_file(tmp_path: Path) -> None:
    packed = tmp_path / "a.pcap.gz"
    packed.write_bytes(__import__("gzip").compress(QOS1.read_bytes()))

    assert run("show", "--follow", "-").exit_code == 2
    assert run("show", "--follow", QOS1, QOS1).exit_code == 2
    said = run("show", "--follow", packed)
    assert (said.exit_code, said.stderr.count("\n")) == (1, 1)
    assert "cannot be followed" in said.stderr
    missing = run("show", "--follow", tmp_path / "none")
    assert (missing.exit_code, missing.stderr) == (1, f"mqpcap: {tmp_path / 'none'}: No such file or directory\n")


TCPDUMP = """
import signal, sys, time
data = open(sys.argv[1], "rb").read()
held = int(sys.argv[2])
def leave(number, frame):
    time.sleep(0.3)
    sys.stdout.buffer.write(data[-held:])
    sys.stdout.buffer.flush()
    sys.exit(0)
signal.signal(signal.SIGINT, leave)
sys.stdout.buffer.write(data[:-held])
sys.stdout.buffer.flush()
print("ready", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""
"""Like ``tcpdump -w -``: what it has not written by then it writes on Ctrl-C."""


def until_reading(shell: int) -> None:
    """Wait until the command that a shell runs waits for its pipe: it has been in one system call for a while."""
    deadline_s, before, since_s = time.monotonic() + PATIENCE_S, "", time.monotonic()
    while time.monotonic() < deadline_s and (time.monotonic() - since_s < 1 or before in ("", "running")):
        time.sleep(0.02)
        with suppress(OSError):
            for child in Path(f"/proc/{shell}/task/{shell}/children").read_text().split():
                if b"show" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                    now = Path(f"/proc/{child}/syscall").read_text().partition(" ")[0].strip()
                    before, since_s = now, since_s if now == before else time.monotonic()


@pytest.mark.parametrize("held", ["1000", "all"])
def test_ctrl_c_on_a_terminal_is_the_end_of_a_pipe(held: str, tmp_path: Path) -> None:
    """All lines, also of what the writer had in its buffer, the summary, and exit code 0."""
    writer = tmp_path / "writer.py"
    writer.write_text(TCPDUMP)
    count = QOS1.stat().st_size if held == "all" else held
    shell = f'"$0" {writer} {QOS1} {count} | "$0" -c "{PATIENT_CODE}" show -u -; echo "code $?"'
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execvpe("sh", ["sh", "-c", "trap : INT; " + shell, sys.executable], environment(TERM="xterm"))
    said, pressed = b"", False  # what nobody has read by then a terminal throws away at Ctrl-C
    with suppress(OSError):
        while some := os.read(terminal, 65536):
            said += some
            enough = held == "all" or said.count(b"\n") > 200
            if not pressed and b"ready" in said and enough and not select.select([terminal], [], [], 1)[0]:
                if held == "all":
                    until_reading(child)
                pressed = os.write(terminal, b"\x03") == 1
    os.close(terminal)
    os.waitpid(child, 0)

    lines = said.decode().replace("\r", "").splitlines()
    assert "code 0" in lines
    assert sum(" -> " in one or " <- " in one for one in lines) == 242
    assert any(one.startswith("242 messages: 242 blipmq") for one in lines)
    assert "Traceback" not in said.decode()


def test_a_second_ctrl_c_interrupts() -> None:
    header, packets = records(QOS1)
    with shown("-", command=PATIENT) as show:
        put(show, header + b"".join(packets[:4]))
        line(show)
        while show.poll() is None:  # the writer is waited for: only a second Ctrl-C ends it
            show.send_signal(signal.SIGINT)
            time.sleep(0.1)
        code, _, stderr = ended(show)

    assert (code, stderr) == (1, "mqpcap: interrupted\n")


def test_a_writer_that_does_not_hear_ctrl_c_is_not_waited_for() -> None:
    header, packets = records(QOS1)
    with shown("-") as show:
        put(show, header + b"".join(packets[:4]))
        line(show)
        show.send_signal(signal.SIGINT)
        code = show.wait(PATIENCE_S)

    assert code == 0


# -- interfaces ----------------------------------------------------------------------------------------


def may_listen() -> str | None:
    """Why interfaces cannot be listened to here, None if they can."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
        import scapy.libs.winpcapy  # noqa: F401 - libpcap itself
    except (OSError, AttributeError) as error:
        return f"interfaces cannot be listened to here: {error}"
    return None


listens = pytest.mark.skipif(may_listen() is not None, reason=may_listen() or "")


def on_loopback(broker: Broker, *arguments: object) -> list[object]:
    return ["-i", "lo", "-f", f"tcp port {broker.port}", "-d", f"tcp.port=={broker.port},blipmq", *arguments]


def asked(broker: Broker, show: "subprocess.Popen[bytes]", exchange_count: int) -> None:
    """Have a conversation as soon as somebody listens."""
    until_listening(show.pid)
    broker.ask(exchange_count)


@listens
def test_every_message_on_an_interface_is_shown() -> None:
    """10,000 messages; how long they take from wire to line is measured by hand: tests/bench/live.py.

    Each burst is shown before the next: it fits the kernel's buffer, however slow the reader is.
    """
    said = []
    with Broker() as broker, shown(*on_loopback(broker, "-c", 10_000)) as show:
        for _ in range(20):
            asked(broker, show, 250)
            said += [line(show) for _ in range(500)]
        code, rest, stderr = ended(show)

    assert (code, rest) == (0, "")
    ids = [re.search(r"  (PING|PONG)  id=(\d+)", one) for one in said]
    assert {int(one[2]) for one in ids if one and one[1] == "PING"} == set(range(3, 251))
    assert {int(one[2]) for one in ids if one and one[1] == "PONG"} == set(range(3, 251))
    assert len([one for one in ids if one]) == 20 * 2 * 248
    replies = [one for one in said if "  PONG  " in one]
    assert all(re.search(r"  <= #\d+ in \d+\.\d{3} ms$", one) for one in replies)
    assert stderr.splitlines()[-1].startswith("10,000 messages: 10,000 blipmq; flaws: none; ")
    assert stderr.rstrip().endswith(" packets, 0 dropped")


@listens
def test_tls_on_an_interface_is_opened_by_a_key_log_that_grows(tmp_path: Path) -> None:
    """The client writes its lines with its handshake, when packets of it were captured."""
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    (tmp_path / "keys.log").touch()

    def answer(listener: socket.socket) -> None:
        with server.wrap_socket(listener.accept()[0], server_side=True) as end:
            end.recv(100)
            end.sendall(bytes.fromhex("af01080100000004 00000000"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=answer, args=(listener,))
        with shown("-i", "lo", "-f", f"tcp port {port}", "--keylog", tmp_path / "keys.log", "-c", 2) as show:
            until_listening(show.pid)
            thread.start()
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain, client.wrap_socket(plain) as end:
                end.sendall(bytes.fromhex("af01080000000000"))
                end.recv(100)
                code, stdout, stderr = ended(show)
        thread.join(PATIENCE_S)

    assert code == 0, stderr
    assert ["  flymq/go  LIST_TOPICS  " in shown_line for shown_line in stdout.splitlines()] == [True, True]


@listens
def test_ctrl_c_ends_an_interface() -> None:
    with Broker() as broker, shown(*on_loopback(broker)) as show:
        asked(broker, show, 3)
        seen = [line(show) for _ in range(6)]
        show.send_signal(signal.SIGINT)
        code, rest, stderr = ended(show)

    assert (code, rest) == (0, "")
    assert [re.search("HELLO|AUTH|ACK|PING|PONG", one)[0] for one in seen] == [  # type: ignore[index]  # or it fails
        "HELLO", "ACK", "AUTH", "ACK", "PING", "PONG"
    ]  # fmt: skip
    assert stderr.splitlines()[-1].startswith("6 messages: 6 blipmq; flaws: none; ")


@listens
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interface_is_exported_in_folders(ending: signal.Signals, tmp_path: Path) -> None:
    """Each appears when it is whole, and together they have every message."""
    out = tmp_path / "out"
    with Broker() as broker:
        options = ["-i", "lo", "-f", f"tcp port {broker.port}", "-d", f"tcp.port=={broker.port},blipmq"]
        export = subprocess.Popen(
            [*COMMAND, "export", *options, "--rotate", "2s", "--out", str(out)], cwd=ROOT, env=environment(),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until_listening(export.pid)
        broker.ask(5)
        deadline_s = time.monotonic() + PATIENCE_S
        while len(finished(out)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        broker.ask(7)
        export.send_signal(ending)
        _, stderr = export.communicate(timeout=PATIENCE_S)

    assert export.returncode == 0, stderr
    folders = finished(out)
    assert [one.name for one in out.iterdir() if one not in folders] == []
    assert all(re.fullmatch(r"\d{8}T\d{6}Z", one.name) for one in folders)
    rows, captures = (
        [row for one in folders if (one / table).exists() for row in pq.read_table(one / table).to_pylist()]
        for table in ("messages", "captures")
    )
    assert len(rows) == 24
    assert {row["dropped"] for row in captures} == {0}
    assert sum(row["messages"] for row in captures) == 24
    assert {row["capture"] for row in rows} <= {f"lo@{one.name}" for one in folders}


def finished(out: Path) -> list[Path]:
    return sorted(one for one in out.iterdir() if not one.name.startswith(".")) if out.is_dir() else []


@listens
@pytest.mark.parametrize("period_s", [0.1, None])
def test_what_came_before_the_end_is_read(period_s: float | None) -> None:
    """Also what the kernel still holds, and what came while the folder of the period before was written."""
    answer = frame(PONG, 3)
    with Broker() as broker, listening("lo", f"tcp port {broker.port}", EndOfInput(), Outcome(Choices())) as listener:
        captures = listener.periods(period_s)
        first = next(captures).windows()
        if period_s is not None:
            assert sum(len(window.packet_number) for window in first) == 0, "the first period is over"
        broker.ask(3)
        listener.stop()
        rest = chain(first, *(one.windows() for one in captures))
        seen = [window.buffer[at : at + size].tobytes() for window in rest for at, size in packets_of(window)]

    assert sum(answer in packet for packet in seen) == 1


def packets_of(window: Window) -> list[tuple[int, int]]:
    return list(zip(window.offset.tolist(), window.caplen.tolist(), strict=True))


def test_rotate_goes_with_an_interface(tmp_path: Path) -> None:
    assert run("export", QOS1, "--rotate", "1h", "--out", tmp_path / "out").exit_code == 2
    assert run("export", "-i", "lo", "--rotate", "1y", "--out", tmp_path / "out").exit_code == 2
    assert run("export", "--out", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()


@listens
def test_what_cannot_be_listened_to_is_one_line() -> None:
    nobody = run("show", "-i", "nosuch0")
    assert (nobody.exit_code, nobody.stderr.count("\n")) == (1, 1)
    assert "there is no such interface; there are " in nobody.stderr

    assert run("show", "-i", "lo", "-f", "tcp prt 1").exit_code == 2


@listens
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_a_user_without_permission_to_listen_gets_one_line() -> None:
    """The same user without any capability: another one may be unable to enter the folder of the checkout."""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    listening = subprocess.run(
        [*powerless, *COMMAND, "show", "-i", "lo"], cwd=ROOT, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (listening.returncode, listening.stdout, listening.stderr.count("\n")) == (1, "", 1)
    assert "permission" in listening.stderr and "tcpdump -U -w - | mqpcap show -" in listening.stderr


def test_an_interface_is_the_only_input() -> None:
    assert run("show", "-i", "lo", QOS1).exit_code == 2
    assert run("show", "-f", "tcp", QOS1).exit_code == 2
    assert run("show").exit_code == 2


@listens
def test_counts_come_again_and_again_in_python() -> None:
    """Three of five frames that a client sends are PINGs; closing the iterator ends listening."""
    with Broker() as broker:
        decode_as, bpf = {broker.port: "blipmq"}, f"tcp port {broker.port}"
        tables = mqpcap.live_stats("lo", every="10ms", bpf=bpf, by="op", metric="count", decode_as=decode_as)
        assert next(tables).num_rows == 0
        broker.ask(5)
        counts: dict[str, int] = {}
        for table in tables:
            counts = dict(zip(table["op"].to_pylist(), table["messages"].to_pylist(), strict=True))
            if counts.get("PONG") == 3:
                break
        tables.close()  # type: ignore[attr-defined]  # a generator

    assert (counts["HELLO"], counts["PING"], counts["PONG"]) == (1, 3, 3)
    assert not [thread for thread in threading.enumerate() if thread.name in ("mqpcap-count", "mqpcap-listen")]


def test_live_counts_take_the_words_of_the_commands() -> None:
    with pytest.raises(mqpcap.QueryError, match="exclude each other"):
        mqpcap.live_stats("lo", unanswered=True, slower_than="1s")


def test_an_interface_that_there_is_not_is_an_error_in_python() -> None:
    notes: list[str] = []
    with pytest.raises(mqpcap.CaptureError, match="nope: "):
        next(mqpcap.live_stats("nope", notes=notes))

    assert notes == ["nothing to count; info says what there is"]


@listens
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_counts_are_written_again_while_packets_come(ending: signal.Signals) -> None:
    """In a pipe rows after their time, at last those of all messages."""
    with Broker() as broker:
        stats = subprocess.Popen(
            [*COMMAND, "stats", *map(str, on_loopback(broker)), "--every", "1s", "--by", "op", "--metric", "count"],
            cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until_listening(stats.pid)
        broker.ask(5)
        assert stats.stdout is not None
        said = []
        while not any(one.startswith("PING") for one in said):
            said.append(stats.stdout.readline())
            assert said[-1], "stats has ended"
        stats.send_signal(ending)
        rest, stderr = stats.communicate(timeout=PATIENCE_S)

    last = (rest if "PING" in rest else "".join(said)).split("-- ")[-1]
    counts = {words[0]: words[1] for words in map(str.split, last.splitlines()[2:])}
    assert (stats.returncode, counts["PING"], counts["PONG"]) == (0, "3", "3"), stderr
    assert re.search(r"\d+ messages: \d+ blipmq; flaws: none; \d+ packets, 0 dropped$", stderr, re.MULTILINE), stderr
    assert re.match(r"-- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", said[0])


@listens
def test_counts_on_a_terminal_stand_over_the_last_ones() -> None:
    with Broker() as broker:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(ROOT)
            words = ["stats", *map(str, on_loopback(broker)), "--every", "1s"]
            os.execvpe(sys.executable, [*COMMAND, *words], environment(TERM="xterm"))
        until_listening(child)
        broker.ask(5)
        said = b""
        while b"PING" not in said:
            said += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        with suppress(OSError):
            while more := os.read(terminal, 65536):
                said += more
        os.close(terminal)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[H\x1b[2J" in said
    assert b"Traceback" not in said


@listens
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_ring_keeps_its_newest_files_and_deletes_no_other(ending: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "ring"
    with Broker() as broker:
        options = ["-i", "lo", "-f", f"tcp port {broker.port}", "--ring", "3x2kB", "--out", str(out)]
        extract = subprocess.Popen(
            [*COMMAND, "extract", *options], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
        )
        until_listening(extract.pid)
        broker.ask(5)
        while not finished(out):
            assert extract.poll() is None
            time.sleep(0.05)
        foreign = out / "00002_foreign.pcapng"
        foreign.write_text("by hand")
        broker.ask(200)
        while len(names := sorted(one.name for one in finished(out))) < 4 or names[0].startswith("00001"):
            assert extract.poll() is None
            time.sleep(0.05)
        extract.send_signal(ending)
        _, stderr = extract.communicate(timeout=PATIENCE_S)

    assert extract.returncode == 0, stderr
    assert foreign.read_text() == "by hand"
    kept = [one for one in finished(out) if one != foreign]
    numbers = [int(one.name[:5]) for one in kept]
    assert numbers == list(range(numbers[-1] - 2, numbers[-1] + 1))
    assert all(one.stat().st_size < 8000 for one in kept)
    assert re.search(rf"{out}: \d+ packets in {numbers[-1]} files; the newest 3 are kept", stderr)


def test_what_an_interface_has_queued_is_read_however_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a pipe may go on after Ctrl-C: an interface stops, and ends after its last packet."""
    monkeypatch.setattr("mqpcap.cli.live.DRAIN_S", -1.0)
    of_interface, of_pipe = EndOfInput(), EndOfInput()
    of_interface.tell(lambda: None)
    for end in (of_interface, of_pipe):
        end._hear(signal.SIGINT, None)

    assert (of_interface.is_over(), of_pipe.is_over()) == (False, True)


def test_ring_wants_an_interface_and_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for options, words in (
        (["-i", "lo", "--out", "x"], "-i and --ring go together"),
        ([QOS1, "--ring", "2x1MB", "--out", "x"], "-i and --ring go together"),
        (["-i", "lo", "--ring", "many", "--out", "x"], "is no ring like 10x100MB"),
        (["-i", "lo", "--ring", "2x1MB", "--op", "PING", "--out", "x"], "--ring keeps all packets"),
        (["-i", "lo", QOS1, "--ring", "2x1MB", "--out", "x"], "goes with no INPUT"),
    ):
        said = run("extract", *options, cwd=tmp_path)
        assert (said.exit_code, said.stdout) == (2, "")
        assert words in said.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
    if may_listen() is None:
        said = run("extract", "-i", "lo", "--ring", "2x1MB", "--out", tmp_path / "mine")
        assert (said.exit_code, "mine cannot be made" in said.stderr) == (1, True)


def test_counts_come_again_only_from_an_interface() -> None:
    said = run("stats", "--every", "5s", QOS1)

    assert (said.exit_code, said.stdout) == (2, "")
    assert "--every goes with -i" in said.stderr
