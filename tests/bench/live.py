"""How long a message takes from the wire to its line: `show -i lo`, and a broker that is none.

    python tests/bench/live.py [--messages 10000] [--each-ms 2] [--json]

A client and a broker talk on loopback, two messages every ``--each-ms``; each line of ``show`` says when its first
packet was captured, and is noted when it comes. The messages are counted: a line that is missing ends the run.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from live_broker import Broker, until_listening

DAY_S = 86_400


def seconds(clock: str) -> float:
    """The time of day of a line."""
    hour, minute, second = clock.rstrip("Z").split(":")
    return int(hour) * 3600 + int(minute) * 60 + float(second)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=10_000)
    options.add_argument("--each-ms", type=float, default=2.0)
    asked = options.parse_args()
    with Broker() as broker:
        command = [sys.executable, "-m", "mqpcap", "show", "-u", "-i", "lo", "-f", f"tcp port {broker.port}"]
        command += ["-d", f"tcp.port=={broker.port},blipmq", "-c", str(asked.messages)]
        show = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert show.stdout is not None
        until_listening(show.pid)

        talk = threading.Thread(target=broker.ask, args=(asked.messages // 2, asked.each_ms / 1000), daemon=True)
        talk.start()
        took_ms = []
        for line in show.stdout:
            took_ms.append((time.time() % DAY_S - seconds(line.split()[0])) % DAY_S * 1000)
    if len(took_ms) != asked.messages:
        sys.exit(f"{len(took_ms)} lines of {asked.messages}")
    cuts = statistics.quantiles(took_ms, n=100)
    print(f"{len(took_ms)} messages; wire to line: median {cuts[49]:.0f} ms, 95th percentile {cuts[94]:.0f} ms, "
          f"longest {max(took_ms):.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
