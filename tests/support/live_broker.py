"""A BlipMQ broker that is not one, and a client that asks it, on loopback: traffic for those who listen.

Frames: four bytes of length (bytes after them), a kind, an id of eight bytes, a body.
"""

import os
import socket
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

HELLO, AUTH, ACK, PING, PONG = 1, 2, 5, 7, 8
LISTENING_S = 180
HEAD = struct.Struct(">IBQ")


def frame(kind: int, number: int, body: bytes = b"") -> bytes:
    return HEAD.pack(9 + len(body), kind, number) + body


class Broker:
    """Answers on a free port of loopback until it is left."""

    def __enter__(self) -> "Broker":
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._server.accept()[0],), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError), peer, peer.makefile("rb") as asked:
            while head := asked.read(HEAD.size):
                length, kind, number = HEAD.unpack(head)
                asked.read(length - 9)
                peer.sendall(frame(PONG, number) if kind == PING else frame(ACK, number, bytes(8)))

    def ask(self, exchange_count: int, each_s: float = 0.0) -> None:
        """A client that says so many PINGs after its HELLO and AUTH, and waits for every answer."""
        with socket.create_connection(("127.0.0.1", self.port)) as mine, mine.makefile("rb") as heard:
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begin_s = time.monotonic()
            asks = [frame(HELLO, 1, b"\0\1"), frame(AUTH, 2, b"\0\4pass")]
            asks += [frame(PING, 3 + k) for k in range(exchange_count - 2)]
            for k, ask in enumerate(asks):
                mine.sendall(ask)
                heard.read(HEAD.unpack(heard.read(HEAD.size))[0] - 9)
                time.sleep(max(0.0, begin_s + (k + 1) * each_s - time.monotonic()))


def until_listening(pid: int) -> None:
    """Wait until a process captures an interface. Raises AssertionError if it ends before, or after LISTENING_S."""
    deadline_s = time.monotonic() + LISTENING_S
    while not listening(pid):
        assert not has_ended(pid), f"process {pid} ended before it captured an interface"
        assert time.monotonic() < deadline_s, f"process {pid} captures no interface after {LISTENING_S} s"
        time.sleep(0.05)


def listening(pid: int) -> bool:
    """Whether a process takes packets of an interface: its packet socket runs, and it holds both ends of one pipe.

    The pipe is opened after the filter. While libpcap sets that, packets are thrown away.
    """
    with suppress(OSError):
        rows = [row.split() for row in Path("/proc/net/packet").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[-1]}]" for row in rows if row[5] == "1"}
        links = [(os.readlink(link), link.lstat().st_mode) for link in Path(f"/proc/{pid}/fd").iterdir()]
        read = {name for name, mode in links if name.startswith("pipe:") and mode & stat.S_IRUSR}
        written = {name for name, mode in links if name.startswith("pipe:") and mode & stat.S_IWUSR}
        return any(name in sockets for name, _ in links) and bool(read & written)
    return False


def has_ended(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
