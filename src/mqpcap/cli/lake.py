"""``mqpcap lake``: the contents of a lake, and its upkeep."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import folders
from mqpcap.cli.console import print_note, put
from mqpcap.errors import MqpcapError
from mqpcap.wording import clock, plural, size

if TYPE_CHECKING:
    from mqpcap.delta.contents import LakeContents

KEPT_HOURS = 168
"""Files that a version of this time needs stay: readers may still be at them."""


def lake_extra() -> None:
    """Raises MqpcapError if the table format is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise MqpcapError("the table format is not installed; pip install 'mqpcap[lake]'") from error


@command(epilog="Example: mqpcap lake tables --optimize")
@click.argument("folder", metavar="DIR", shell_complete=folders)
@click.option("--optimize", is_flag=True, help="Make large files of small ones, sorted by time and connection.")
@click.option("--vacuum", is_flag=True, help="Delete files that no version of the last week needs.")
@click.option("--keep", "keep_hours", type=click.IntRange(min=0), default=KEPT_HOURS, metavar="HOURS",
              help="Keep the files of these last hours, not of a week.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.option("-u", "--utc", is_flag=True, help="Write times in UTC, marked Z, not in local time.")
def lake(folder: str, optimize: bool, vacuum: bool, keep_hours: int, as_json: bool, utc: bool) -> None:
    """Show the recordings and tables of a lake.

    The output has gaps between files, rows, sizes and versions. A lake is what mqpcap export INPUT... --append DIR
    writes.
    """
    lake_extra()
    from mqpcap.delta import tables as delta_tables
    from mqpcap.delta.contents import lake_contents
    from mqpcap.delta.growth import Lake
    from mqpcap.tables.json_lines import json_text

    path = Path(folder)
    contents = lake_contents(path)
    if optimize or vacuum:
        with Lake(path) as growing:
            if optimize:
                for name, small_count, large_count in delta_tables.optimize(path, growing.catalog.run):
                    print_note(f"{name}: {plural(small_count, 'file')} became {large_count}")
            if vacuum:
                print_note(f"{folder}: deleted {plural(delta_tables.vacuum(path, keep_hours), 'file')}")
        contents = lake_contents(path)
    if as_json:
        put(json_text(asdict(contents)))
    else:
        _tell(contents, utc)


def _tell(contents: "LakeContents", utc: bool) -> None:
    for recording in contents.recordings:
        times = (recording.first_ts_ns, recording.last_ts_ns)
        span = " to ".join("-" if ts_ns is None else clock(ts_ns, utc, True) for ts_ns in times)
        gap = "" if not recording.gap_ns else f", longest gap {recording.gap_ns / 1e9:,.3f} s"
        state = f", open ({size(recording.state_bytes)})" if recording.is_open else ""
        put(f"{recording.capture}: {plural(recording.file_count, 'file')}, {plural(recording.messages, 'message')}, "
            f"{span}{gap}{state}")  # fmt: skip
    width = max((len(table.name) for table in contents.tables), default=0)
    for table in contents.tables:
        put(f"  {table.name:<{width}}  {plural(table.row_count, 'row')} in {plural(table.file_count, 'file')}, "
            f"{size(table.size_bytes)}, version {table.version}")  # fmt: skip
