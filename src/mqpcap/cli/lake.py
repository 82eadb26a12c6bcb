"""``mqpcap lake``: the contents of a lake, and its upkeep."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import folders
from mqpcap.cli.console import print_note, put, put_rows
from mqpcap.cli.options import utc_option
from mqpcap.delta import check_installed
from mqpcap.statistics.report_columns import Column
from mqpcap.wording import clock, plural, size

if TYPE_CHECKING:
    from mqpcap.delta.contents import LakeContents

RECORDINGS = (
    Column("capture", "recording"), Column("file_count", "files", "number"),
    Column("packets", "packets", "number", is_spare=True), Column("messages", "messages", "number"),
    Column("first", "from", "plain"), Column("last", "to", "plain"),
    Column("gap_ns", "longest gap ms", "ms", is_spare=True), Column("state", "state", "plain", is_spare=True),
)  # fmt: skip
TABLES = (
    Column("name", "table"), Column("row_count", "rows", "number"), Column("file_count", "files", "number"),
    Column("size", "size", "plain"), Column("version", "version", "number"),
)  # fmt: skip
KEPT_HOURS = 168
"""Files that a version of this time needs stay: readers may still be at them."""


@command(epilog="Example: mqpcap lake tables --optimize")
@click.argument("folder", metavar="DIR", shell_complete=folders)
@click.option("--optimize", is_flag=True, help="Make large files of small ones, sorted by time and connection.")
@click.option("--vacuum", is_flag=True, help="Delete files that no version of the last week needs.")
@click.option("--keep", "keep_hours", type=click.IntRange(min=0), default=KEPT_HOURS, metavar="HOURS",
              help="Keep the files of these last hours, not of a week.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@utc_option
def lake(folder: str, optimize: bool, vacuum: bool, keep_hours: int, as_json: bool, utc: bool) -> None:
    """Show the recordings and tables of a lake.

    The output has gaps between files, rows, sizes and versions. A lake is what mqpcap export INPUT... --append DIR
    writes.
    """
    check_installed()
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
    recordings = []
    for x in contents.recordings:
        times = [
            None if ts_ns is None else clock(ts_ns, utc, True).partition(".")[0]
            for ts_ns in (x.first_ts_ns, x.last_ts_ns)
        ]
        state = f"open, state {size(x.state_bytes)}" if x.is_open else "complete"
        recordings.append(asdict(x) | {"first": times[0], "last": times[1], "state": state})
    put_rows(RECORDINGS, recordings, "text", is_folded=True)
    put("" if recordings else "no recordings")
    put_rows(TABLES, [asdict(table) | {"size": size(table.size_bytes)} for table in contents.tables], "text")
