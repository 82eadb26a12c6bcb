"""Captures changed at random: ``python tests/bench/captures.py [--count N] [--seed N] [--loss] [--packets N]``.

Not a test: run it by hand; the suite tries some (``tests/test_mutated_captures.py``). Checked of each: no traceback,
the law of conservation, the same rows in windows of one packet. With --loss packets are not changed, but every other
capture misses 5 % of them.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "support"))

import mutated_captures  # noqa: E402
from mutated_captures import PCAPS, capture_bytes, differences, mutant, stretch  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", action="store_true")
    parser.add_argument("--packets", type=int, default=mutated_captures.STRETCH, help="packets of each capture")
    parser.add_argument("--keep", type=Path, help="a folder for the captures that fail")
    parser.add_argument("captures", nargs="*", type=Path)
    args = parser.parse_args()
    mutated_captures.STRETCH = args.packets
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    paths = args.captures or sorted(PCAPS.glob("*/*.pcap"))
    originals = [data for path in paths if (data := path.read_bytes())[:4] == b"\xd4\xc3\xb2\xa1"]
    failed: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        for k in range(args.count):
            rnd = random.Random(f"{args.seed} {k}")
            data = rnd.choice(originals)
            changed = capture_bytes(data[:24], stretch(data, rnd, 0.05 * (k % 2))) if args.loss else mutant(data, rnd)
            path = Path(folder) / "capture.pcap"
            path.write_bytes(changed)
            try:
                wrong = differences(path)
            except Exception as error:  # whatever it is, it is counted
                wrong = {f"traceback {type(error).__name__}": [repr(error)]}
            failed.update(dict.fromkeys(wrong, 1))
            if wrong and args.keep is not None:
                (args.keep / f"{args.seed}-{k}.pcap").write_bytes(changed)
            for name, rows in wrong.items():
                if failed[name] <= 3:
                    print(f"{k} {name}:", *(row[:700] for row in rows[:4]), sep="\n  ")
    print(f"{args.count} captures, failed:", dict(failed) or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
