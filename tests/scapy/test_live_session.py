"""Messages as they happen: a session of Scapy beside ``show -i``, which listens to the same connections.

Nothing here waits for a time: the connections stay open until both gave every message, whenever that is.
"""

import socket
import sys
import time
from itertools import chain
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import sniff

PATIENCE_S = 300
CAPTURES = (
    "blipmq/qos1", "blipmq/midstream", "flymq/core", "fq/session", "kokaq/doc_session", "kokaq/go1_session",
    "kokaq/lean_session", "mqtt/v5_paho", "mqtt/v311_offline_dup", "msgq/flat_session", "msgq/json_session",
    "msgq/split_session",
)  # fmt: skip
MOST = 20
"""Messages of a dialogue that are said; they fit the kernel's buffer, however slow the listeners are."""


def may_listen() -> str:
    """Why this cannot be tried here; nothing if it can."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
        import scapy.libs.winpcapy  # noqa: F401 - libpcap itself
    except (OSError, AttributeError) as error:
        return f"interfaces cannot be listened to here: {error}"
    return ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.skipif(may_listen() != "", reason=may_listen())
def test_a_session_gives_the_messages_of_show_while_their_connections_are_open() -> None:
    """All protocols and dialects. Only the last message of a side may wait, where the next one shows its end."""
    said = {name: [d[:MOST] for _, d in sniff.dialogues(sniff.PCAPS / f"{name}.pcap")] for name in CAPTURES}
    talks = [(name, dialogue) for name, of_it in said.items() for dialogue in of_it if "s2c" in dict(dialogue)]
    ports = {name: free_port() for name in CAPTURES}
    bpf = " or ".join(f"tcp port {port}" for port in ports.values())
    show, session = sniff.listeners(bpf, {port: name.partition("/")[0] for name, port in ports.items()})
    ends = []
    try:
        for name, dialogue in talks:
            ends.append(sniff.open_connection(ports[name]))
            sniff.say(ends[-1], dialogue)
        least = sum(len(dialogue) - 2 for _, dialogue in talks)
        deadline_s = time.monotonic() + PATIENCE_S
        while not (least <= len(show.came_s) == len(session.came_s)) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        while_open = {*show.came_s}, {*session.came_s}
    finally:
        for end in chain.from_iterable(ends):
            end.close()
        for listener in (show, session):
            listener.stop()

    assert while_open[0] == while_open[1]
    assert len(while_open[1]) >= least
    assert session.came_s.keys() == show.came_s.keys()
    assert len(session.came_s) == sum(len(dialogue) for _, dialogue in talks)
