"""Pairs of captures as they really are: ``python tests/bench/degraded.py CAPTURE... [--tries N] [--seed N]``.

Not a test: run it by hand. Each capture is degraded TRIES times in each of the ways of `degraded_captures`. A row a
protocol and way: pairs that are there, certain and likely ones that were found, and wrong ones of each.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from degraded_captures import HEAVY_WAYS, OTHER_WAYS, WAYS, measured


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *HEAVY_WAYS, *OTHER_WAYS], default=[*WAYS, *HEAVY_WAYS])
    options = parser.parse_args()
    paths = [p for c in options.captures for p in (sorted(c.glob("**/*.pcap")) if c.is_dir() else [c])]
    total = Counter[tuple[str, str, str]]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for counts in pool.map(partial(measured, tries=options.tries, seed=options.seed, ways=options.ways), paths):
            total.update(counts)
    print(f"{'':10}{'':10}{'there':>8}{'certain':>10}{'likely':>10}{'wrong':>8}{'likely, wrong':>15}")
    for protocol in sorted({key[0] for key in total}):
        for way in options.ways:
            n = total[protocol, way, "there"]
            shares = [f"{100 * total[protocol, way, state] / max(n, 1):.1f}%" for state in ("answered", "likely")]
            wrong = [total[protocol, way, f"wrong {state}"] for state in ("answered", "likely")]
            print(f"{protocol:10}{way:10}{n:8}{shares[0]:>10}{shares[1]:>10}{wrong[0]:8}{wrong[1]:15}")


if __name__ == "__main__":
    main()
