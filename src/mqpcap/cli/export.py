"""``mqpcap export``: captures to tables."""

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from mqpcap.cli.options import Choices, common
from mqpcap.cli.reading import Outcome, dissections, finish, found
from mqpcap.cli.talk import plural, say, size

if TYPE_CHECKING:
    from mqpcap.outputs import Summary
    from mqpcap.tables import Chunk


@click.command(epilog="Example: mqpcap export pcaps --out tables")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--out", required=True, metavar="DIR", help="Where the tables go; an earlier export there is replaced.")
@click.option("--overwrite", is_flag=True, help="Replace DIR whatever is in it.")
@common
def export(inputs: tuple[str, ...], out: str, overwrite: bool, choices: Choices) -> None:
    """Write the tables of captures as Parquet.

    INPUT is a file, a directory (searched for captures), a glob, or - for standard input. DIR appears when all is
    written; until then what was there stays.
    """
    from pathlib import Path

    from mqpcap.outputs import DATES, Export

    outcome = Outcome(choices)
    captures = found(inputs, outcome).captures
    files = [Path(name) for capture in captures for name in capture.files if name != "-"]
    threads = choices.jobs or os.cpu_count() or 1
    if not captures:
        finish(outcome)
    problem_bytes: Counter[str] = Counter()
    dissected_count = 0
    with Export(Path(out), overwrite=overwrite, keep=files, threads=threads) as tables:

        def write(chunk: "Chunk") -> None:
            outcome.take(chunk)
            tables.write("messages", chunk.messages, "ts_ns")
            tables.write(chunk.protocol, chunk.fields, "ts_ns")

        for dissection in dissections(captures, outcome, write):
            dissected_count += 1
            for chunk in dissection.chunks():
                write(chunk)
            for ledger in dissection.ledgers().values():
                for name in ("exchanges", "deliveries"):
                    tables.write(name, getattr(ledger, name), DATES[name])
            for name in ("connections", "problems"):
                tables.write(name, getattr(dissection, name), DATES[name])
            for kind, length in zip(
                dissection.problems["kind"].to_pylist(), dissection.problems["length"].to_pylist(), strict=True
            ):
                problem_bytes[kind] += length
        if not dissected_count:
            finish(outcome)  # what was there stays: it is worth more than nothing
        summary = tables.commit()
    if not choices.quiet:
        tell(summary, outcome, problem_bytes, out)
    finish(outcome)


def tell(summary: "Summary", outcome: Outcome, problem_bytes: Counter[str], out: str) -> None:
    """Say on stderr what an export came to."""
    read = f"{plural(outcome.capture_count, 'capture')} ({plural(outcome.file_count, 'file')})"
    say(f"{out}: {plural(summary.row_count, 'row')} in {plural(summary.file_count, 'file')}, "
        f"{size(summary.size_bytes)}, from {read}")  # fmt: skip
    width = max((len(table.name) for table in summary.tables), default=0)
    for table in summary.tables:
        say(f"  {table.name:<{width}}  {plural(table.row_count, 'row')}")
    flaws = ", ".join(f"{count:,} {flaw}" for flaw, count in sorted(outcome.flaws.items()))
    say(f"flaws: {flaws or 'none'}; undecoded: {size(problem_bytes['undecoded'])}; "
        f"gaps: {size(problem_bytes['gap'])}; conflicts: {size(problem_bytes['conflict'])}")  # fmt: skip
