"""Sixteen questions about message queues in captures, each a file of standard SQL, for DuckDB, Polars and Spark.

``run("slowest", con)`` asks a DuckDB connection, a ``polars.SQLContext`` or a Spark session whose tables or views have
the names of the tables of an export; ``tables(con, DIR)`` makes them. The statements also run as they are, after
``register(con)``. It makes the views of the folder ``views``, and three views from the protocols' descriptions.
``roles`` is the purpose of operations: protocol, direction, op (or error_text) and role; a trait of a broker has no op.
``details`` has facts about messages in queues that only the protocol's own table has. ``items`` are the messages inside
a reply with several.

So no statement names a protocol, and a new protocol is answered, too. Tables may hold several captures: nothing is
paired across captures, and counts are sums. If the captures do not show a value, it is null.
"""

import datetime
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mqpcap.errors import QueryError, one_line
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.schemas import TABLES, plain
from mqpcap.wording import extra_line

VIEWS = ("paired", "operations", "item_counts", "payloads", "log_calls", "tagged_deliveries")
"""Views that questions share; a view needs only views before it."""
PARAMETERS: Mapping[str, Mapping[str, object]] = {
    "rates": {"window_ns": 1_000_000_000, "top": 10},
    "slowest": {"n": 10},
    "what_did": {"client": None, "start": "1970-01-01", "end": "2262-01-01"},
}
"""The parameters of questions, with their defaults; None: it must be given."""
MOMENTS = ("start", "end")
"""Parameters that are moments: text in ISO form, or nanoseconds since 1970."""
BIG = "DECIMAL(20,0)"
DETAILS = {
    "sender": "STRING", "identity": "STRING", "subscription": BIG, "tag": BIG, "acked_tag": BIG, "log_offset": BIG,
    "log_position": BIG, "next_offset": BIG, "committed_offset": BIG, "latest_offset": BIG, "lag": BIG,
    "has_items": "BOOLEAN", "compressed": "BOOLEAN", "body": "BINARY",
}  # fmt: skip
"""The columns of the view ``details`` beside the key of the message; see ``MessageQueue.details``."""
KEY = ("capture", "connection_id", "direction", "stream_offset")
ROLES = pa.schema([(name, pa.string()) for name in ("protocol", "direction", "op", "error_text", "role")])


class Engine(Protocol):
    """What differs between the engines."""

    unnest: str
    """The function that makes a row of each item of a list."""

    def columns(self, table: str) -> Sequence[str] | None:
        """The columns of a table or view, None if there is none."""

    def put(self, name: str, rows: pa.Table) -> None:
        """Makes a view of rows."""

    def view(self, name: str, statement: str) -> None:
        """Makes a view of a statement, or replaces it."""

    def ask(self, statement: str, values: Mapping[str, object]) -> Any:
        """The answer, as the engine gives it."""

    def parquet(self, name: str, paths: Sequence[str]) -> None:
        """Makes a view of Parquet files."""


def questions() -> dict[str, str]:
    """The names of the questions, and each in a sentence."""
    texts = {name: statement(name) for name in _names()}
    return {name: text.splitlines()[0].removeprefix("-- ") for name, text in texts.items()}


@cache
def _names() -> tuple[str, ...]:
    names = (file.name for file in files(__name__).iterdir() if file.name.endswith(".sql"))
    return tuple(sorted(name.removesuffix(".sql") for name in names))


@cache
def statement(name: str) -> str:
    """The SQL of a question, its explanation in comments. Raises QueryError if there is none of that name."""
    if name not in _names():
        order = ": the question comes first, then the directory" if os.path.exists(name) else ""
        raise QueryError(f"there is no question {name!r}{order}; there are {', '.join(_names())}")
    return (files(__name__) / f"{name}.sql").read_text("utf-8")


def run(question: str, con: Any, **parameters: object) -> Any:
    """The answer to a question: a DuckDB relation, a Polars DataFrame or a Spark DataFrame.

    Raises QueryError for an unknown question or parameter, and for a missing parameter.
    """
    values = check(question, parameters)
    return register(con).ask(statement(question), values)


def check(question: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """The values of all parameters of a question; raises QueryError as `run` does."""
    statement(question)
    defaults = PARAMETERS.get(question, {})
    if unknown := parameters.keys() - defaults.keys():
        raise QueryError(f"{question} has no parameter {min(unknown)}; it has {', '.join(defaults) or 'none'}")
    values = {**defaults, **parameters}
    for name, value in values.items():
        if value is None:
            raise QueryError(f"{question} needs the parameter {name}")
        if name in MOMENTS:
            values[name] = _moment_ns(value)
        elif isinstance(defaults[name], int):
            values[name] = _count(name, value)
        else:
            values[name] = str(value)
    return values


def why_not(question: str, protocol_names: Iterable[str]) -> list[str]:
    """Why a question has no answer for some protocols."""
    described = {name: protocols()[name] for name in protocol_names}
    if question == "backlog":
        names = (name for name, protocol in described.items() if "transient" in protocol.roles.traits)
        return [f"{name} keeps no messages, so it has no backlog" for name in names]
    if question == "undelivered":
        rows = roles().to_pylist()
        names = (
            name for name in described if not any(x["protocol"] == name and x["role"] == "delivering" for x in rows)
        )
        return [f"{name} has nothing in its deliveries that names their publish" for name in names]
    if question == "acks":
        without = (name for name, x in described.items() if x.acknowledgement is None and not x.roles.lock)
        return [f"{name} has no acknowledgements of messages" for name in without]
    return []


def register(con: Any) -> Engine:
    """Makes the views that the statements need; a table of the contract that is missing becomes one without rows."""
    engine = _engine(con)
    for table, schema in TABLES.items():
        if engine.columns(table) is None:
            engine.put(table, plain(schema).empty_table())
    engine.put("roles", roles())
    parts = {name: engine.columns(name) for name in protocols()}
    captured = {name: columns for name, columns in parts.items() if columns is not None}
    engine.view("details", _details(captured))
    engine.view("items", _items(captured, engine.unnest))
    for name in VIEWS:
        engine.view(name, (files(__name__) / "views" / f"{name}.sql").read_text("utf-8"))
    return engine


def tables(con: Any, folder: Path | str) -> None:
    """Makes a view of each table of an export or a lake. Raises QueryError if the folder holds none."""
    engine, path = _engine(con), Path(folder)
    paths = {name: _files(path / name) for name in (*TABLES, *protocols())}
    if not any(paths.values()):
        raise QueryError(f"{folder} holds no tables of an export")
    for name, table_paths in paths.items():
        if table_paths:
            engine.parquet(name, table_paths)


def holds_tables(folder: Path | str) -> bool:
    """Whether the folder is an export or a lake."""
    return any((Path(folder) / name).is_dir() for name in TABLES)


def _files(folder: Path) -> list[str]:
    """The Parquet files of a table; those of a lake are the newest version's."""
    if not (folder / "_delta_log").is_dir():
        return sorted(map(str, folder.glob("date=*/*.parquet")))
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise QueryError(f"the table format is not installed: {extra_line('lake')}") from error
    try:
        actions = pa.table(DeltaTable(folder).get_add_actions())
    except (DeltaError, OSError, ValueError) as error:
        raise QueryError(f"{folder} cannot be read: {one_line(error)}") from error
    return [str(folder / path) for path in actions["path"].to_pylist()]


def roles() -> pa.Table:
    """The purpose of operations and errors: a row per protocol, direction, op (or error_text) and role.

    The roles are the fields and traits of `mqpcap.schema.requests.Roles`. Beside them ``reply`` is the reply to a
    ``poll``, ``take`` a poll that is no ``peek``, ``taken`` the reply to one, ``grant`` a reply to a ``login``.
    ``delivering``: deliveries of the protocol name their publish.
    """
    rows = [(name, *row) for name, protocol in protocols().items() for row in _roles(protocol)]
    rows.sort(key=lambda row: tuple(value or "" for value in row))
    return pa.Table.from_pylist([dict(zip(ROLES.names, row, strict=True)) for row in rows], ROLES)


def _roles(protocol: MessageQueue) -> Iterator[tuple[str | None, str | None, str | None, str]]:
    declared = protocol.roles
    operations = asdict(declared)
    for trait in operations.pop("traits"):
        yield None, None, None, trait
    for role in ("empty", "denied", "outdated"):
        for text in operations.pop(role):
            yield "s2c", None, text, role
    for role, names in operations.items():
        for op in names:
            yield "s2c" if role == "deliver" else "c2s", op, None, role
    for op in declared.poll:
        yield "s2c", op, None, "reply"
    for op in declared.poll - declared.peek:
        yield "c2s", op, None, "take"
        yield "s2c", op, None, "taken"
    rules = (protocol.rule, *protocol.rule.queues) if protocol.rule is not None else ()
    if any(rule.deliveries for rule in rules):
        yield None, None, None, "delivering"
    asks = protocol.rule.asks if protocol.rule is not None else {}
    for reply in {reply for op in declared.login if op in asks for reply in asks[op].by}:
        yield "s2c", reply, None, "grant"


def _details(captured: Mapping[str, Sequence[str]]) -> str:
    """The statement of ``details``: for each protocol its expressions, null for the others."""
    keys, parts = ", ".join(KEY), []
    for name in captured:
        protocol = protocols()[name]
        described = {**protocol.details, **(protocol.acknowledgement.details() if protocol.acknowledgement else {})}
        if described:
            values = (
                f"CAST({described.get(column, 'NULL')} AS {kind}) AS {column}" for column, kind in DETAILS.items()
            )
            parts.append(f"SELECT {keys}, {', '.join(values)} FROM {name}")
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in DETAILS.items())
    return "\nUNION ALL\n".join(parts) or f"SELECT {keys}, {nothing} FROM messages WHERE FALSE"


def _items(captured: Mapping[str, Sequence[str]], unnest: str) -> str:
    keys, parts = ", ".join(KEY), []
    for name in captured:
        column, _, field = protocols()[name].items.partition(".")
        if column:
            rows = f"SELECT {keys}, {unnest}({column}) AS item FROM {name}"
            key = f'CAST(item."{field}" AS {BIG}) AS item_key'
            parts.append(f"SELECT {keys}, {key} FROM ({rows}) AS unnested WHERE item IS NOT NULL")
    return "\nUNION ALL\n".join(parts) or f"SELECT {keys}, CAST(NULL AS {BIG}) AS item_key FROM messages WHERE FALSE"


def _count(name: str, value: object) -> int:
    """The value of a parameter that is a number above 0, also as text."""
    if isinstance(value, int | str) and re.fullmatch(r"0*[1-9][0-9]{0,17}", str(value)):
        return int(value)
    raise QueryError(f"{name} is a number above 0, not {value!r}")


def _moment_ns(moment: object) -> int:
    """A moment in nanoseconds since 1970; without a zone it is UTC."""
    if isinstance(moment, int) or re.fullmatch(r"[0-9]{16,19}", str(moment)):
        return int(str(moment))
    try:
        when = moment if isinstance(moment, datetime.datetime) else datetime.datetime.fromisoformat(str(moment))
    except ValueError as error:
        raise QueryError(f"{moment!r} is not a time as 2024-05-01 or 2024-05-01T12:00:00") from error
    aware = when if when.tzinfo is not None else when.replace(tzinfo=datetime.UTC)
    since = aware - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since // datetime.timedelta(microseconds=1)) * 1000


def _engine(con: Any) -> Engine:
    module = type(con).__module__.split(".")[0].strip("_")
    if module not in ENGINES:
        raise QueryError(f"{type(con).__name__} is no DuckDB connection, polars.SQLContext or Spark session")
    return ENGINES[module](con)


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


class DuckDB:
    """A DuckDB connection; views are temporary, so the database may be read-only."""

    unnest = "UNNEST"

    def __init__(self, con: Any) -> None:
        self.con = con

    def columns(self, table: str) -> Sequence[str] | None:
        """See `Engine`."""
        rows = self.con.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?", [table]
        ).fetchall()
        return [name for (name,) in rows] or None

    def put(self, name: str, rows: pa.Table) -> None:
        """See `Engine`."""
        self.con.register(name, rows)

    def view(self, name: str, statement: str) -> None:
        """See `Engine`."""
        self.con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {statement}")

    def ask(self, statement: str, values: Mapping[str, object]) -> Any:
        """See `Engine`."""
        return self.con.sql(re.sub(r"(?<!:):([a-z_]+)", r"$\1", statement), params=dict(values))

    def parquet(self, name: str, paths: Sequence[str]) -> None:
        """See `Engine`."""
        literals = ", ".join(_literal(re.sub(r"([*?\[])", r"[\1]", path)) for path in paths)
        self.view(name, f"SELECT * FROM read_parquet([{literals}], hive_partitioning = false)")


class Polars:
    """A ``polars.SQLContext``."""

    unnest = "UNNEST"

    def __init__(self, con: Any) -> None:
        self.con = con

    @property
    def polars(self) -> ModuleType:
        """The library, which is there if a context of it is."""
        import polars

        return polars

    def columns(self, table: str) -> Sequence[str] | None:
        """See `Engine`."""
        if table not in self.con.tables():
            return None
        return list(self.con.execute(f"SELECT * FROM {table} LIMIT 0").collect_schema())

    def put(self, name: str, rows: pa.Table) -> None:
        """See `Engine`."""
        self.con.register(name, self.polars.from_arrow(rows).lazy())

    def view(self, name: str, statement: str) -> None:
        """See `Engine`."""
        self.con.register(name, self.con.execute(statement).lazy())

    def ask(self, statement: str, values: Mapping[str, object]) -> Any:
        """See `Engine`."""
        text = re.sub(r":([a-z_]+)", lambda match: _literal(values[match[1]]), _without_comments(statement))
        return self.con.execute(text, eager=True)

    def parquet(self, name: str, paths: Sequence[str]) -> None:
        """See `Engine`."""
        self.con.register(name, self.polars.scan_parquet(paths, hive_partitioning=False, glob=False))


class Spark:
    """A Spark session, also of Spark Connect."""

    unnest = "EXPLODE"

    def __init__(self, con: Any) -> None:
        self.con = con

    def columns(self, table: str) -> Sequence[str] | None:
        """See `Engine`."""
        return self.con.table(table).columns if self.con.catalog.tableExists(table) else None

    def put(self, name: str, rows: pa.Table) -> None:
        """See `Engine`."""
        self.con.createDataFrame(rows).createOrReplaceTempView(name)

    def view(self, name: str, statement: str) -> None:
        """See `Engine`."""
        self.con.sql(statement.replace('"', "`")).createOrReplaceTempView(name)

    def ask(self, statement: str, values: Mapping[str, object]) -> Any:
        """See `Engine`."""
        return self.con.sql(statement, args=dict(values))

    def parquet(self, name: str, paths: Sequence[str]) -> None:
        """See `Engine`."""
        escaped = (re.sub(r"([\\*?\[\]{}])", r"\\\1", path) for path in paths)
        self.con.read.parquet(*escaped).createOrReplaceTempView(name)


def _without_comments(statement: str) -> str:
    return "\n".join(line.split("--")[0] for line in statement.splitlines())


if TYPE_CHECKING:
    _: tuple[type[Engine], ...] = (DuckDB, Polars, Spark)
ENGINES: Mapping[str, type[DuckDB] | type[Polars] | type[Spark]] = {
    "duckdb": DuckDB,
    "polars": Polars,
    "pyspark": Spark,
}
