"""Logins of the sample captures, mutated, in every output: ``python tests/bench/secret_mutants.py [--count N]``.

Not a test: run it by hand; ``--seed N`` gives other mutants. The suite tries 250 of each capture
(``tests/cli/test_secrets.py``). Outputs that show a secret are named with their capture and seed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "cli"), str(TESTS / "support")]

from test_secrets import LOGINS, leaking_outputs  # noqa: E402  # found by the path above

OF_A_CAPTURE = 500
"""Connections of one capture; further ones are of further seeds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    leaking: list[tuple[str, int, str]] = []
    for seed in range(args.seed, args.seed + -(-args.count // (OF_A_CAPTURE * len(LOGINS)))):
        for name in LOGINS:
            with tempfile.TemporaryDirectory() as folder:
                leaking += [(name, seed, x) for x in leaking_outputs(name, OF_A_CAPTURE, seed, Path(folder))]
    print(f"{args.count} mutants", *leaking, sep="\n")
    return 1 if leaking else 0


if __name__ == "__main__":
    sys.exit(main())
