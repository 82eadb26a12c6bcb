"""What the pipeline makes of a capture, table by table."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from mqpcap.capture import captures
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Options, Output

PCAPS = Path(__file__).parent.parent / "pcaps"


def tables(path: Path, options: Options) -> dict[str, pa.Table]:
    """Every table of a capture, by name."""
    parts: dict[str, list[pa.Table]] = {}

    def take(output: Output) -> None:
        parts.setdefault(output.table, []).append(output.rows)
        if output.protocol is not None and output.fields is not None:
            parts.setdefault(output.protocol, []).append(output.fields)

    CapturePipeline(captures([str(path)]).captures[0], options, take).run()
    return {name: pa.concat_tables(some).unify_dictionaries() for name, some in parts.items()}


@pytest.mark.parametrize("name", ["blipmq/qos1.pcap", "flymq/pipelining.pcap", "fq/session.pcap"])
@pytest.mark.parametrize("table", [None, *sorted(OPTIONAL_TABLES)])
def test_a_table_that_nobody_wants_changes_no_other(name: str, table: str | None) -> None:
    every = tables(PCAPS / name, Options())
    wanted = OPTIONAL_TABLES & {table}

    made = tables(PCAPS / name, replace(Options(), optional_tables=wanted))

    assert made.keys() == every.keys() - (OPTIONAL_TABLES - wanted)
    assert all(rows.equals(every[name]) for name, rows in made.items())
    assert every.keys() >= {"messages", "connections", *OPTIONAL_TABLES}
