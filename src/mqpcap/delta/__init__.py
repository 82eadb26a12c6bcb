"""A lake: Delta tables that grow capture by capture, with the rows of one reading of everything.

Layout: ``DIR/TABLE`` is a Delta table, ``DIR/_mqpcap`` has a catalog for each run and the states of recordings that go
on. A run takes each new file once, continues the recording that the file belongs to, and commits ``captures`` last:
then, and only then, the run counts. A killed run leaves nothing that counts, and the next run removes what it wrote.
The library ``deltalake`` (extra ``lake``) keeps the tables, so DuckDB, Polars, pandas and Spark read them as any other.
"""

from mqpcap.errors import MqpcapError
from mqpcap.wording import extra_line


def check_installed() -> None:
    """Raises MqpcapError if the table format is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise MqpcapError(f"the table format is not installed: {extra_line('lake')}") from error
