"""Messages changed at random, read by Scapy's classes: ``python tests/bench/mutants.py [--count N] [--seed N]``.

Not a test: run it by hand. Every mutant must build its bytes again, and so must what its ``command()`` says; the suite
tries some hundred (``tests/scapy/test_layers.py``). Mutants that fail are counted and one of each kind is shown.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from scapy.packet import Padding, Raw
from scapy.sendrecv import sniff

from mqpcap.scapy import MqSession, message_classes
from mqpcap.schema.message import Message

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
OF_A_CAPTURE = 60


def corpus() -> list[tuple[type[Message], bytes]]:
    """Messages of every sample capture: the class that reads them and their bytes."""
    found = []
    for path in sorted(PCAPS.glob("*/*.pcap")):
        messages = list(sniff(offline=str(path), session=MqSession(), quiet=True))
        some = random.sample(messages, min(OF_A_CAPTURE, len(messages)))
        found += [(type(message), message.original) for message in some]
    return found


def mutant(raw: bytes) -> bytes:
    """The bytes with some changed, cut, put in or appended."""
    at, size = random.randint(0, len(raw)), random.randint(0, 4)
    changed = raw[:at] + random.randbytes(random.randint(0, 4)) + raw[at + size :]
    return changed[: random.choice((at, len(changed), len(changed)))] + random.choice((b"", b"", b"\0", raw))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    messages, names = corpus(), {"Raw": Raw, "Padding": Padding, **message_classes()}
    failed: Counter[tuple[str, str]] = Counter()
    for _ in range(args.count):
        cls, raw = random.choice(messages)
        changed = mutant(raw) or raw
        packet = cls(changed)
        command = packet.command()
        for way, built in (("bytes", packet), ("command", eval(command, dict(names)))):
            if bytes(built) != changed:
                failed[way, cls.__name__] += 1
                if failed[way, cls.__name__] == 1:
                    print(f"{way} of {cls.__name__}: {changed.hex()}\n  {command}\n  {bytes(built).hex()}")
    print(f"{args.count} mutants of {len(messages)} messages, {failed.total()} failed", dict(failed) or "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
