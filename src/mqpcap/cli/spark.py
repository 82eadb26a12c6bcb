"""``mqpcap spark export``: captures to tables, made by Spark."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from mqpcap.cli.command import Command, Group
from mqpcap.cli.completion import folders
from mqpcap.cli.console import print_note
from mqpcap.cli.export import tell
from mqpcap.cli.options import allow_missing, common
from mqpcap.cli.process import allow_pandas
from mqpcap.cli.reading import exit_code, finish, print_summary
from mqpcap.reading import Choices, Outcome
from mqpcap.wording import plural

if TYPE_CHECKING:
    from mqpcap.options import Options
    from mqpcap.spark.job import JobOutcome

_CHEAP = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""The rows of a job are few and large: code for them costs more CPU to compile than it saves (measured)."""
EXAMPLE = "Example: mqpcap spark export pcaps --out tables --master 'local[2]'"


@click.group(cls=Group, epilog=EXAMPLE)
def spark() -> None:
    """Do the work of export with Spark."""


@spark.command(cls=Command, epilog=EXAMPLE)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@click.option("--out", "out_dir", metavar="DIR", shell_complete=folders,
              help="Write the tables here: a path that all machines see, or a URI as s3://bucket/tables.")  # fmt: skip
@click.option("--append", "lake_dir", metavar="DIR", shell_complete=folders,
              help="Add whole recordings to a lake here, as export --append --finish does.")  # fmt: skip
@click.option("--master", metavar="URL",
              help="Run on local[N], spark://HOST:PORT, yarn, k8s://... or sc://HOST.  "
                   "[default: local[*]]")  # fmt: skip
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option of Spark (repeatable).")
@click.option("--shares", type=click.IntRange(min=1), metavar="N",
              help="Cut every capture into N parts.  [default: by size and slots]")  # fmt: skip
@allow_missing
@common
def export(
    inputs: tuple[str, ...],
    out_dir: str | None,
    lake_dir: str | None,
    master: str | None,
    settings: tuple[str, ...],
    shares: int | None,
    allow_missing: bool,
    choices: Choices,
) -> None:
    """Write the tables of captures as Parquet with a cluster.

    Rows are those of mqpcap export. INPUT is a file, a directory, a glob or a URI; all machines must see it. DIR is
    new, empty, or holds nothing but an earlier export. With --append DIR is a lake; the next files of a recording that
    is open there are for mqpcap export --append.
    """
    if (out_dir is None) == (lake_dir is None):
        raise click.UsageError("name either --out DIR or --append DIR")
    if "-" in inputs:
        raise click.BadParameter("standard input cannot be read by a cluster", param_hint="INPUT")
    allow_pandas()  # pyspark imports it
    import logging

    from mqpcap.spark.share import TASK_MEMORY_BYTES

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs a traceback of its errors, too
    shows_progress = not choices.quiet and sys.stderr.isatty()
    conf = {**_CHEAP, "spark.ui.showConsoleProgress": str(shows_progress).lower(), **_conf(settings)}
    outcome = Outcome(choices)
    options = replace(choices, max_memory_bytes=choices.max_memory_bytes or TASK_MEMORY_BYTES).dissection()
    task = _Task(master, conf, options, shares)
    if lake_dir is not None:
        if allow_missing:
            raise click.UsageError("--allow-missing goes with --out")
        _append(inputs, lake_dir, task, outcome)
    else:
        assert out_dir is not None
        _write_tables(inputs, out_dir, task, allow_missing, outcome)
    finish(outcome)


class _Task(NamedTuple):
    """How the work is done."""

    master: str | None
    conf: dict[str, str]
    options: "Options"
    share_count: int | None


def _write_tables(inputs: Sequence[str], out_dir: str, task: _Task, allow_missing: bool, outcome: Outcome) -> None:
    from mqpcap.continued_files import captures
    from mqpcap.spark import job
    from mqpcap.spark.session import session

    search = captures(inputs, outcome.choices.is_one)
    outcome.skipped += search.skipped
    outcome.capture_count = len(search.captures)
    outcome.file_count = sum(len(capture.files) for capture in search.captures)
    outcome.notes += [text for capture in search.captures for text in capture.doubts]
    # Told before any work starts: a cluster's hour is dearer than a second look at a name.
    for name, reason in search.unreadable:
        print_note(f"mqpcap: {name}: {reason}")
    if search.captures:
        result = job.export(
            session(task.master, task.conf), search.captures, out_dir, task.options, share_count=task.share_count,
            unread=[*search.unreadable, *search.skipped], is_missing=bool(search.unreadable),
            allow_missing=allow_missing,
        )  # fmt: skip
        _tell_result(result, outcome, out_dir)
    if search.unreadable or not search.captures:
        click.get_current_context().exit(max(1, exit_code(outcome)))


def _append(inputs: Sequence[str], lake_dir: str, task: _Task, outcome: Outcome) -> None:
    """Add recordings that are new to a lake."""
    from pathlib import Path

    from mqpcap.delta import check_installed

    check_installed()
    from mqpcap.delta.growth import Lake
    from mqpcap.spark import job
    from mqpcap.spark.session import session
    from mqpcap.tables.export import check_local

    check_local(lake_dir)
    with Lake(Path(lake_dir), outcome.choices.dissection()) as lake:
        additions = lake.only_new(lake.sort_out(inputs, outcome, all_now=True, rebuild=False), outcome)
        if additions:
            result = job.append(
                session(task.master, task.conf), lake, additions, task.options, outcome, task.share_count
            )
            _tell_result(result, outcome, lake_dir)


def _tell_result(result: "JobOutcome", outcome: Outcome, out_dir: str) -> None:
    """Say on stderr what an export came to; raises the error of a refused one."""
    from mqpcap.capture.remote import redacted_uri

    outcome.flaws.update(result.flaws)
    outcome.problem_bytes.update(result.problem_bytes)
    outcome.notes += result.notes
    outcome.unreadable += result.unreadable
    if result.refusal is not None:
        exit_code(outcome)
        raise result.refusal
    if result.summary is not None:
        tell(result.summary, outcome, redacted_uri(out_dir))
        print_summary(outcome, plural(result.task_count, "task"))


def _conf(settings: tuple[str, ...]) -> dict[str, str]:
    conf = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is no KEY=VALUE", param_hint="--conf")
        conf[key] = value
    return conf
