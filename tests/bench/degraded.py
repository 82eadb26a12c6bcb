"""Pairs of captures as they really are: ``python tests/bench/degraded.py CAPTURE... [--tries N] [--seed N]``.

Not a test: run it by hand. Each capture is degraded TRIES times in each of the ways of `degraded_captures`. A row a
protocol and way: pairs that are there, certain and likely ones that were found, and wrong ones of each. Pairs that the
whole capture leaves unknown are those of its NAME.truth.json. ``--simulate N``: also N conversations of 400 requests of
each shape of `conversations`, with each loss.
"""

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from degraded_captures import HEAVY_WAYS, OTHER_WAYS, WAYS, measured
from simulated_exchanges import LOSSES, SHAPES, Conversation

Counts = Counter[tuple[str, str, str]]


def simulated(shape: str, count: int, seed: int) -> Counts:
    """Counts of conversations of a shape, by shape, way and what was found."""
    counts = Counts()
    for way, loss in LOSSES.items():
        for number in range(count):
            dice = random.Random(f"{shape} {way} {seed} {number}")
            for what, found in Conversation(dice, 400, SHAPES[shape], loss).counts().items():
                counts[shape, way, what] += found
    return counts


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--simulate", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *HEAVY_WAYS, *OTHER_WAYS], default=[*WAYS, *HEAVY_WAYS])
    options = parser.parse_args()
    paths = [p for c in options.captures for p in (sorted(c.glob("**/*.pcap")) if c.is_dir() else [c])]
    total = Counts()
    with ProcessPoolExecutor(options.jobs) as pool:
        for counts in pool.map(partial(measured, tries=options.tries, seed=options.seed, ways=options.ways), paths):
            total.update(counts)
        if options.simulate:
            for counts in pool.map(partial(simulated, count=options.simulate, seed=options.seed), SHAPES):
                total.update(counts)
    print(f"{'':10}{'':10}{'there':>8}{'certain':>10}{'likely':>10}{'wrong':>8}{'likely, wrong':>15}")
    for name, way in dict.fromkeys(key[:2] for key in sorted(total, key=lambda key: key[0])):
        n = total[name, way, "there"]
        shares = [f"{100 * total[name, way, state] / max(n, 1):.1f}%" for state in ("answered", "likely")]
        wrong = [total[name, way, f"wrong {state}"] for state in ("answered", "likely")]
        print(f"{name:10}{way:10}{n:8}{shares[0]:>10}{shares[1]:>10}{wrong[0]:8}{wrong[1]:15}")


if __name__ == "__main__":
    main()
