"""Changes the code at one place and runs the tests: ``python tests/bench/code_mutants.py --help``.

Not a test: run it by hand, without other work on the machine. Each mutant flips a comparison, ``and`` and ``or``, or a
number in ``tcp``, ``decode`` or ``correlate``. It is *killed* if a test of its package fails or does not end within the
time limit. The score is the share of killed mutants; a survivor is printed with its line. The tests of each package run
without a change first: if they fail, each mutant would count as killed.

The mutant is a copy of the package in a temporary folder, where the changed module runs uncompiled. If other modules
use its C types, its package runs uncompiled.
"""

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tcp", "decode", "correlate")
OTHER = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
NOT_RUN = ("test_hostile_shapes.py", "test_foreign_traffic.py", "test_late_starts.py")
"""Tests that take more than a few seconds uncompiled."""


class Mutation(NamedTuple):
    """The text that replaces a part of a line of a module."""

    module: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """The source with the change."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.text.encode() + line[self.end :]).decode()
        return "".join(lines)


def _between(source: str, left: ast.expr, right: ast.expr) -> tuple[int, int, int] | None:
    """Line, start and end of the operator between two expressions of a line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    return right.lineno, left.end_col_offset, right.col_offset


def mutations(module: Path) -> Iterator[Mutation]:
    """All mutations of a module."""
    source = module.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER:
            span = _between(source, node.left, node.comparators[0])
            if span is not None and b")" not in source.splitlines()[span[0] - 1].encode()[span[1] : span[2]]:
                yield Mutation(module, *span, f" {OTHER[type(node.ops[0])]} ")
        elif isinstance(node, ast.BoolOp):
            span = _between(source, node.values[0], node.values[1])
            if span is not None and source.splitlines()[span[0] - 1].encode()[span[1] : span[2]].split() in (
                [b"and"], [b"or"],
            ):  # fmt: skip
                yield Mutation(module, *span, " or " if isinstance(node.op, ast.And) else " and ")
        elif isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 1 << 32:
            yield Mutation(module, node.lineno, node.col_offset, node.end_col_offset or 0, str(node.value + 1))


def sample(count: int, seed: int) -> list[Mutation]:
    """Mutations of every package, as many of each."""
    chooser, chosen = random.Random(seed), list[Mutation]()
    for package in PACKAGES:
        modules = sorted((ROOT / "src" / "mqpcap" / package).glob("*.py"))
        found = [mutation for module in modules for mutation in mutations(module)]
        chosen += chooser.sample(found, min(count // len(PACKAGES), len(found)))
    return chosen


def tests_of(mutation: Mutation) -> list[str]:
    """The tests of the mutant's package, those of its module first."""
    package = ROOT / "tests" / mutation.module.parent.name
    own = package / f"test_{mutation.module.name}"
    others = sorted(x for x in package.glob("test_*.py") if x != own and x.name not in NOT_RUN)
    return [str(x) for x in ([own] if own.exists() else []) + others]


def is_killed(mutation: Mutation, folder: Path, limit_s: float) -> bool:
    """Whether a test fails, or does not end within the limit."""
    package = folder / "src" / "mqpcap"
    copied = package / mutation.module.relative_to(ROOT / "src" / "mqpcap")
    original = copied.read_text()
    # Compiled modules that import the types of a .pxd cannot use those of its uncompiled module.
    compiled = list(copied.parent.glob("*.so" if copied.with_suffix(".pxd").exists() else f"{copied.stem}.*.so"))
    try:
        for library in compiled:
            library.rename(library.with_suffix(".off"))
        copied.write_text(mutation.apply(original))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests_of(mutation)]
        environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit_s) == 1
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    finally:
        copied.write_text(original)
        for library in compiled:
            library.with_suffix(".off").rename(library)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=300)
    parser.add_argument("--package", choices=PACKAGES, action="append", help="of the sample only its mutants")
    args = parser.parse_args()
    killed: dict[str, list[bool]] = {package: [] for package in args.package or PACKAGES}
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(ROOT / "src", Path(name) / "src")
        for mutation in sample(args.count, args.seed):
            if mutation.module.parent.name not in killed:
                continue
            if not killed[mutation.module.parent.name] and is_killed(
                mutation._replace(line=1, start=0, end=0, text=""), Path(name), args.limit_s
            ):
                sys.exit(f"the tests of {mutation.module.parent.name} fail without a change: nothing is measured")
            result = is_killed(mutation, Path(name), args.limit_s)
            killed[mutation.module.parent.name].append(result)
            line = mutation.module.read_text().splitlines()[mutation.line - 1].strip()
            print(
                "killed  " if result else "SURVIVED", f"{mutation.module.relative_to(ROOT)}:{mutation.line}",
                repr(mutation.text.strip()), line, flush=True,
            )  # fmt: skip
    for package, results in killed.items():
        print(f"{package}: {sum(results)} of {len(results)} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
