"""What a tiny capture costs among many: ``python tests/bench/small.py [--files 300,1500] [--only apart,rotated]``.

Not a test: run it by hand. CPU seconds (user + system) of whole commands at two numbers of files, and of the difference
the cost of one more file, without the start.

apart    a folder of recordings: each is a connection of one publish, 8 packets
rotated  a recording in as many files, of 13 packets each, with one connection through all of them
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import traffic  # noqa: E402

import spark  # noqa: E402

ROADS = {
    "info": ("info", "-q", "IN"),
    "export": ("export", "-q", "IN", "--jobs", "1", "--out", "OUT"),
    "lake": ("export", "-q", "IN", "--append", "OUT"),
    "spark": ("spark", "export", "-q", "--master", "local[2]", "IN", "--out", "OUT"),
}


def _letters(number: int) -> str:
    """A number in letters: no counter, so that its file is a recording of its own."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:05d}")


def apart(folder: Path, count: int) -> None:
    for number in range(count):
        capture = traffic._Capture(folder / f"run-{_letters(number)}.pcap")
        capture.now_us += number * 1_000_000
        traffic._log_in(capture, number)
        capture.say(number, True, traffic._publish(3, b"once"))
        capture.end(number)


def rotated(folder: Path, count: int) -> None:
    capture = traffic._Capture(folder / "broker.pcap")
    traffic._log_in(capture, 0)
    for number in range(count):
        if number:
            capture.file.close()
            capture.file = (folder / f"broker.pcap{number}").open("wb")
            capture.file.write(traffic.HEADER)
        for k in range(13):
            capture.say(0, True, traffic._publish(3 + number * 13 + k, b"body"))
        capture.now_us += 1_000_000
    capture.end(0)


MAKERS = {"apart": apart, "rotated": rotated}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="300,1500", help="the two numbers of files")
    parser.add_argument("--only", default=",".join(MAKERS), help="apart, rotated")
    parser.add_argument("--roads", default=",".join(ROADS), help=", ".join(ROADS))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mqpcap-bench-"))
    try:
        for kind in chosen.only.split(","):
            counts = [*map(int, chosen.files.split(","))]
            for count in counts:
                (captures := folder / f"{kind}{count}").mkdir()
                MAKERS[kind](captures, count)
                for path in captures.iterdir():
                    os.utime(path, (time.time() - 3600,) * 2)  # nobody writes to it any more
            for road in chosen.roads.split(","):
                spent = []
                for count in counts:
                    out = folder / "out"
                    named = {"IN": str(folder / f"{kind}{count}"), "OUT": str(out)}
                    cpu_s, _, _ = spark.commanded([named.get(word, word) for word in ROADS[road]])
                    spent.append(cpu_s)
                    shutil.rmtree(out, ignore_errors=True)
                each_ms = (spent[-1] - spent[0]) / (counts[-1] - counts[0]) * 1000
                print(
                    f"{kind:<8} {road:<7}",
                    "  ".join(f"{x:6.1f} s" for x in spent),
                    f" {each_ms:6.2f} ms a file",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
