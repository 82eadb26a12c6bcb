"""``mqpcap export``: captures to tables."""

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import folders
from mqpcap.cli.console import metered
from mqpcap.cli.live import EndOfInput, check_sources, input_options, listening
from mqpcap.cli.options import PERIOD, allow_missing, common, filter_options, utc_option
from mqpcap.cli.process import configure_process
from mqpcap.cli.reading import exit_code, print_summary, reading, tell_of_speed
from mqpcap.cli.reading import finish as end
from mqpcap.reading import Choices, Outcome

if TYPE_CHECKING:
    from mqpcap.query import Query
    from mqpcap.tables.export import ExportSummary


@command(epilog="Example: mqpcap export pcaps --out tables")
@input_options
@click.option("--rotate", type=PERIOD, metavar="TIME",
              help="With -i: start a new folder every TIME, as 1h.")  # fmt: skip
@click.option("--out", "out_dir", metavar="DIR", shell_complete=folders,
              help="Write the tables here, replacing an earlier export.")  # fmt: skip
@click.option("--append", "lake_dir", metavar="DIR", shell_complete=folders,
              help="Add to a lake here: each capture once; open connections continue.")  # fmt: skip
@click.option("--finish", is_flag=True, help="End the recordings of the lake: write what is open.")
@click.option("--rebuild", is_flag=True, help="Read the recording of a late file again.")
@click.option("--remove", multiple=True, metavar="CAPTURE",
              help="Take a capture out of the lake (repeatable).")  # fmt: skip
@allow_missing
@utc_option
@filter_options
@common
def export(
    inputs: tuple[str, ...], interface: str | None, bpf: str | None, rotate: int | None, out_dir: str | None,
    lake_dir: str | None, finish: bool, rebuild: bool, remove: tuple[str, ...], allow_missing: bool, utc: bool,
    wanted: "Query | None", choices: Choices,
) -> None:  # fmt: skip
    """Write the tables of captures as Parquet.

    INPUT is a file, a directory (searched for captures), a glob, a URI (s3://bucket/day), or - for standard input. DIR
    appears when all is written; it is new, empty, or has only an earlier export. With a filter the tables have the
    selected messages, their exchanges, deliveries and connections.

    With -i packets are written until Ctrl-C. With --rotate each period is a folder in DIR, named by its start. With
    --append DIR is a lake of Delta tables: files are known by their content, and a killed run is continued.
    """
    from mqpcap.api.tables import export as exported
    from mqpcap.errors import OutputError
    from mqpcap.tables.export import check_export

    check_export(out_dir is not None, lake_dir is not None, bool(finish or rebuild or remove), interface is not None)

    # Loaded before DIR is made: an interrupt may be lost in an import.
    import mqpcap.pipeline  # noqa: F401

    outcome = Outcome(choices)
    if lake_dir is None:
        check_sources(inputs, interface, bpf)
    elif inputs or finish:
        tell_of_speed(outcome)
    if rotate is not None and interface is None:
        raise click.UsageError("--rotate goes with -i")
    if interface is not None and out_dir is not None:
        outcome.choices = replace(choices, wanted=wanted)
        _listened(interface, bpf, out_dir, rotate, outcome)
        end(outcome)
    try:
        with reading(inputs, outcome, wanted) as opened:
            result = exported(
                opened, out_dir, append=lake_dir, finish=finish, rebuild=rebuild, remove=remove,
                allow_missing=allow_missing, prepare=configure_process,
            )  # type: ignore[call-overload]  # of either form  # fmt: skip
    except OutputError:
        exit_code(outcome)  # inputs that cannot be read are reported as well
        raise
    if out_dir is not None:
        tell(result, outcome, out_dir)
    end(outcome)


def _listened(interface: str, bpf: str | None, name: str, rotate_s: int | None, outcome: Outcome) -> None:
    """Write what comes on an interface, a folder for each period, until Ctrl-C."""
    from pathlib import Path

    from mqpcap.errors import OutputError
    from mqpcap.parallel_export import written
    from mqpcap.tables.export import Export, check_local

    check_local(name)
    out_dir = Path(name)
    if rotate_s is not None:
        if out_dir.is_symlink():
            raise OutputError(f"{out_dir} is a symbolic link; give the folder itself")
        out_dir.mkdir(parents=True, exist_ok=True)
    end = EndOfInput(signal.SIGINT, signal.SIGTERM)  # who stops a service loses nothing
    with end, listening(interface, bpf, end, outcome) as listener, metered(0, outcome.choices.quiet) as meter:
        for capture in listener.periods(rotate_s):
            folder = out_dir if rotate_s is None else out_dir / capture.files[0].rpartition("@")[2]
            period = Outcome(outcome.choices, capture_count=1, file_count=1)
            with Export(folder, threads=outcome.choices.core_count) as tables:
                written([capture], period, tables, meter)
                summary = tables.commit()
            with meter.paused():
                tell(summary, period, str(folder))
            outcome.add(period)


def tell(summary: "ExportSummary", outcome: Outcome, out_dir: str) -> None:
    """Say on stderr what an export came to."""
    for line in outcome.described(summary).lines(out_dir):
        print_summary(outcome, line)
