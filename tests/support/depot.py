"""A capture of the rich toy protocol, and the program with its module in the folder of the protocols.

The program is a folder of links to the package under test, so that every process finds the module: the command line's
workers, Spark's, and Scapy's.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from torture import ACK, SYN, Segment, pcap

import mqpcap

MODULE = Path(__file__).parent / "protocols_rich" / "depot.py"
PORT = 5100
ANN, BEA = 40001, 40002
SECRETS = ("open sesame", "badge of ann", "let me in", "badge of bea")


def message(opcode: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([0xD9, opcode]) + len(body).to_bytes(4, "big") + body


def short(text: str | bytes, size: int = 1) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return len(data).to_bytes(size, "big") + data


def ticket(number: int) -> bytes:
    return number.to_bytes(4, "big")


# Client port, whether the server says it, and the message; every millisecond one.
DIALOGUE: Sequence[tuple[int, bool, bytes]] = (
    (ANN, False, message(1, short("ann"), short("open sesame"))),
    (ANN, True, message(2, short("badge of ann"))),
    (ANN, False, message(3, ticket(1), short("nuts"), b"\1", short("dry"), short(b"hazel", 2))),
    (ANN, True, message(4, ticket(1))),
    (ANN, False, message(3, ticket(2), short("nuts"), b"\0", short(b"walnut", 4))),
    (ANN, True, message(4, ticket(2))),
    (BEA, False, message(1, short("bea"), short("let me in"))),
    (BEA, True, message(2, short("badge of bea"))),
    (BEA, False, message(5, ticket(1), short("nuts"))),
    (BEA, True, message(6, ticket(1), short("nuts"), short(b"hazel", 2))),
    (BEA, False, message(5, ticket(2), short("void"))),
    (BEA, True, message(7, ticket(2), b"\4", short("nothing there"))),
)


def capture(folder: Path) -> Path:
    """The dialogue from both connections' first packets on."""
    at = {(port, side): 1 for port in (ANN, BEA) for side in (False, True)}
    segments = [Segment(flags=SYN, client_port=port) for port in (ANN, BEA)]
    segments += [Segment(flags=SYN | ACK, ack=1, from_server=True, client_port=port) for port in (ANN, BEA)]
    for port, is_server, data in DIALOGUE:
        segments.append(
            Segment(data, at[port, is_server], at[port, not is_server], from_server=is_server, client_port=port)
        )
        at[port, is_server] += len(data)
    path = folder / "depot.pcap"
    path.write_bytes(pcap(segments, PORT))
    return path


def program(folder: Path) -> Path:
    """A folder for PYTHONPATH whose mqpcap has the module."""
    for name in ("mqpcap", "pyspark_mqpcap"):
        source = Path(mqpcap.__file__).parent.parent / name
        shutil.copytree(source, folder / name, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(MODULE, folder / "mqpcap" / "protocols")
    return folder
