"""Captures changed at random: ``python tests/bench/captures.py [--count N] [--seed N] [--loss] [--packets N]``.

Not a test: run it by hand; the suite tries some (``tests/test_mutated_captures.py``). Checked of each: no traceback,
the law of conservation, the same rows in windows of one packet. With --loss packets are not changed, but every other
capture misses 5 % of them.

Captures of one folder are read together, each at addresses of its own, with one packet of each in a window: a quarter
of the time that they take one by one. If they fail, each is checked alone. Their clocks are seconds apart, and
deliveries are decided once 0.2 s of the capture are read: deliveries that differ only together are no finding.
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
from mutated_captures import PCAPS, capture_bytes, differences, mutant, side_by_side, stretch  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", action="store_true")
    parser.add_argument("--packets", type=int, default=mutated_captures.STRETCH, help="packets of each capture")
    parser.add_argument("--together", type=int, default=24, help="captures that are read as one")
    parser.add_argument("--keep", type=Path, help="a folder for the captures that fail")
    parser.add_argument("captures", nargs="*", type=Path)
    args = parser.parse_args()
    mutated_captures.STRETCH = args.packets
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    paths = args.captures or sorted(PCAPS.glob("*/*.pcap"))
    originals = [(path.parent.name, data) for path in paths if (data := path.read_bytes())[:4] == b"\xd4\xc3\xb2\xa1"]
    groups: dict[str, dict[str, bytes]] = {}
    failed: Counter[str] = Counter()
    for k in range(args.count):
        rnd = random.Random(f"{args.seed} {k}")
        folder, data = rnd.choice(originals)
        group = groups.setdefault(folder, {})
        lost = 0.05 * (k % 2)
        group[str(k)] = capture_bytes(data[:24], stretch(data, rnd, lost)) if args.loss else mutant(data, rnd)
        if len(group) == args.together:
            report(groups.pop(folder), failed, args)
    for group in groups.values():
        report(group, failed, args)
    print(f"{args.count} captures, failed:", dict(failed) or "none")
    return 1 if failed else 0


def report(group: dict[str, bytes], failed: "Counter[str]", args: argparse.Namespace) -> None:
    """Check captures as one; if that fails, each alone. What fails is counted, printed and kept."""
    together = side_by_side(list(group.values()))
    if not (all_wrong := errors(together, len(group))):
        return
    found = [(name, data, wrong) for name, data in group.items() if (wrong := errors(data))]
    if not found and all_wrong.keys() == {"deliveries"}:
        return
    for name, data, wrong in found or [(f"{next(iter(group))}-together", together, all_wrong)]:
        failed.update(dict.fromkeys(wrong, 1))
        if args.keep is not None:
            (args.keep / f"{args.seed}-{name}.pcap").write_bytes(data)
        for kind, rows in wrong.items():
            if failed[kind] <= 3:
                print(f"{name} {kind}:", *(row[:700] for row in rows[:4]), sep="\n  ", flush=True)


def errors(data: bytes, window_packets: int = 1) -> dict[str, list[str]]:
    """What is wrong with the rows of a capture, by table."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcap"
        path.write_bytes(data)
        try:
            return differences(path, window_packets)
        except Exception as error:  # whatever it is, it is counted
            return {f"traceback {type(error).__name__}": [repr(error)]}


if __name__ == "__main__":
    sys.exit(main())
