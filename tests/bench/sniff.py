"""`sniff(iface="lo", session=MqSession)` beside `show -i lo`, on the same traffic.

    python tests/bench/sniff.py [--rounds 10] [--each-ms 10] [--first N]

The dialogues of sample captures of each protocol are said over sockets on loopback, while both listen; connections stay
open for OPEN_S after their last message. Printed: the messages that only one gave, how much later than ``show`` the
session gave the others, and the CPU time of both, without that of their start.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from live_broker import until_listening

import mqpcap

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
CAPTURES = (
    "blipmq/qos1", "blipmq/midstream", "flymq/core", "flymq/pipelining", "fq/session", "kokaq/doc_session",
    "kokaq/go1_session", "kokaq/lean_session", "mqtt/v5_paho", "mqtt/v311_offline_dup", "msgq/flat_session",
    "msgq/json_session", "msgq/split_session",
)  # fmt: skip
OPEN_S = 1.5
SETTLE_S = 3.0
COLUMNS = ("protocol", "src_port", "dst_port", "stream_offset", "frame_len", "op")
SNIFF = f"""
import json
import signal
import sys
from scapy.all import AsyncSniffer
from mqpcap.scapy import *

def note(message):
    print(*(getattr(message.mq, name) for name in {COLUMNS}), sep="\\t", flush=True)

session = MqSession(decode_as={{int(port): name for port, name in json.loads(sys.argv[2]).items()}})
sniffer = AsyncSniffer(iface="lo", filter=sys.argv[1], session=session, store=False, prn=note,
                       started_callback=lambda: print("listening", flush=True))
signal.signal(signal.SIGINT, signal.SIG_IGN)
sniffer.start()
sys.stdin.read()
sniffer.stop()
for message in session.flush():
    note(message)
"""
Dialogue = list[tuple[str, bytes]]
"""The messages of a connection in order: direction and bytes."""


def dialogues(path: Path) -> list[tuple[int, Dialogue]]:
    """The dialogues of a capture, each with the port of its server."""
    connections: dict[int, tuple[int, Dialogue]] = {}
    for message in mqpcap.messages(path):
        mq = message.mq
        port = mq.dst_port if mq.direction == "c2s" else mq.src_port
        connections.setdefault(mq.connection_id, (port, []))[1].append((mq.direction, message.original))
    return list(connections.values())


def open_connection(port: int) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection to a port."""
    with socket.create_server(("127.0.0.1", port)) as server:
        ends = socket.create_connection(("127.0.0.1", port)), server.accept()[0]
    for end in ends:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ends


def say(ends: tuple[socket.socket, socket.socket], dialogue: Dialogue, each_s: float = 0.0) -> None:
    """Say a dialogue; each message is read before the next is sent."""
    client, server = ends
    for direction, raw in dialogue:
        sender, receiver = (client, server) if direction == "c2s" else (server, client)
        reader = threading.Thread(target=receiver.recv, args=(len(raw), socket.MSG_WAITALL))
        reader.start()
        sender.sendall(raw)
        reader.join()
        time.sleep(each_s)


class Listener(threading.Thread):
    """A process that listens: when it gave each message, and its CPU time."""

    def __init__(self, *command: str) -> None:
        super().__init__(daemon=True)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, text=True)
        self.came_s: dict[str, float] = {}
        self.latest_s = time.monotonic()
        self.is_ready = threading.Event()
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "listening\n":
                self.is_ready.set()
                continue
            self.came_s[line.replace("None", "")] = self.latest_s = time.monotonic()

    def stop(self) -> float:
        """End it; the CPU seconds that it took."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()  # the session's end
        self.process.send_signal(signal.SIGINT)
        self.join()
        self.process.stdout.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime


def listeners(bpf: str, decode_as: Mapping[int, str] = MappingProxyType({})) -> tuple[Listener, Listener]:
    """``show`` and the session, as they listen."""
    fields = [word for name in COLUMNS for word in ("-e", name)]
    rules = [word for port, name in decode_as.items() for word in ("-d", f"tcp.port=={port},{name}")]
    show = Listener("-m", "mqpcap", "show", "-u", "-q", "-i", "lo", "-f", bpf, *rules, "-T", "fields", *fields)
    session = Listener("-c", SNIFF, bpf, json.dumps({**decode_as}))
    until_listening(show.process.pid)
    session.is_ready.wait()
    return show, session


def listen(bpf: str, talks: Sequence[tuple[int, Dialogue]], rounds: int, each_s: float) -> list[tuple[Listener, float]]:
    """``show`` and the session, each with its CPU seconds, after they heard the dialogues."""
    show, session = listeners(bpf)
    for _ in range(rounds):
        ends = [open_connection(port) for port, _ in talks]
        said = [
            threading.Thread(target=say, args=(pair, dialogue, each_s))
            for pair, (_, dialogue) in zip(ends, talks, strict=True)
        ]
        for thread in said:
            thread.start()
        for thread in said:
            thread.join()
        time.sleep(OPEN_S)
        for end in chain.from_iterable(ends):
            end.close()
    while time.monotonic() - max(show.latest_s, session.latest_s) < SETTLE_S:
        time.sleep(0.1)
    return [(listener, listener.stop()) for listener in (show, session)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--each-ms", type=float, default=10.0)
    options.add_argument("--first", type=int, metavar="N", help="only so many messages of each dialogue")
    asked = options.parse_args()
    talks = [(port, said[: asked.first]) for name in CAPTURES for port, said in dialogues(PCAPS / f"{name}.pcap")]
    bpf = " or ".join(f"tcp port {port}" for port in sorted({port for port, _ in talks}))
    idle = [cpu_s for _, cpu_s in listen(bpf, talks, 0, 0)]
    (show, show_s), (session, session_s) = listen(bpf, talks, asked.rounds, asked.each_ms / 1000)

    for name, only in (("show", show.came_s.keys() - session.came_s), ("session", session.came_s.keys() - show.came_s)):
        if only:
            sys.exit(f"{len(only):,} messages of {len(show.came_s):,} only by {name}: {sorted(only)[:5]}")
    later_s = [session.came_s[key] - came_s for key, came_s in show.came_s.items()]
    cuts = statistics.quantiles(later_s, n=100)
    count = len(later_s)
    show_us, session_us = ((s - start) * 1e6 / count for s, start in zip((show_s, session_s), idle, strict=True))
    later_ms = [round(s * 1000) for s in (cuts[49], cuts[98], max(later_s))]
    print("{:,} messages; session later than show: median {} ms, 99 % {} ms, longest {} ms".format(count, *later_ms))
    print(f"CPU a message: show {show_us:.0f} us, session {session_us:.0f} us, {session_us / show_us:.1f} times")


if __name__ == "__main__":
    main()
