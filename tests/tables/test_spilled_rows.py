"""Rows in a temporary file, and the table they are read back as."""

import pyarrow as pa

from mqpcap.tables.spilled_rows import SpilledRows


def test_rows_come_back_in_order_with_their_own_dictionaries() -> None:
    coded = pa.dictionary(pa.int32(), pa.string())
    rows = SpilledRows(pa.schema([("word", coded)]))
    for words in (["a", "b"], ["c", None]):
        rows.append(pa.table({"word": pa.array(words).cast(coded)}))

    assert rows.table()["word"].to_pylist() == ["a", "b", "c", None]


def test_no_rows_are_a_table_without_rows() -> None:
    schema = pa.schema([("n", pa.int64())])

    assert SpilledRows(schema).table().equals(schema.empty_table())


def test_rows_that_are_not_read_leave_no_open_file() -> None:
    rows = SpilledRows(pa.schema([("n", pa.int64())]))
    rows.append(pa.table({"n": [1]}))
    file = rows._file

    del rows

    assert file is not None
    assert file.closed
