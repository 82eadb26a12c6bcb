"""The tables of a capture, of the selected messages only, while they are made.

Fed with what a pipeline emits, gives out rows as they are decided. With a message come its fields, the exchange that it
is the request or the reply of, deliveries both messages of which are selected, and the row of its connection with the
problems there. A message whose selection depends on its exchange waits for it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import I64, true, unified, whole
from mqpcap.pipeline import Output
from mqpcap.query.evaluation import Rows
from mqpcap.query.exchange_rows import exchanges_of
from mqpcap.query.queries import Query
from mqpcap.tables.schemas import TABLES

MAX_PARTS = 64
"""So many batches wait for exchanges, then they are made one of each protocol."""


class Selection:
    """The selected rows of one capture; ``emit`` is given them. Of each selected message it keeps eight bytes."""

    def __init__(self, query: Query, emit: Callable[[Output], None]) -> None:
        self._query, self._emit = query, emit
        self._held: list[Output] = []
        self._problems: list[Output] = []
        self._keys = _Keys()
        self._connections: set[int] = set()
        self._counts: Counter[str] = Counter()

    def take(self, output: Output, first_ns: int) -> None:
        """Take what a pipeline emits of a capture that begins at a time."""
        rows = output.rows
        if output.fields is not None and output.protocol is not None:
            mask = self._query.mask(Rows(output.protocol, rows, output.fields), first_ns)
            self._give(_some(output, true(mask)))
            if self._query.needs.exchanges:
                self._hold([_some(output, pc.is_null(mask).to_numpy(zero_copy_only=False))])
        elif output.table == "exchanges":
            self._settle(rows, None, first_ns)
            ends = [self._has(rows, f"{end}_offset", end == "reply") for end in ("request", "reply")]
            self._pass(output, ends[0] | ends[1])
        elif output.table == "deliveries":
            self._pass(output, self._delivered(rows))
        elif output.table == "connections":
            self._settle(None, rows["connection_id"], first_ns)
            self._pass(output, self._of_connections(rows))
        elif output.table == "problems":
            self._problems.append(output)
        else:
            self._emit(self._counted(output))

    def finish(self) -> None:
        """Give out what stands at the end."""
        for output in self._problems:
            self._pass(output, self._of_connections(output.rows))
        self._problems = []

    def _pass(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(_some(output, rows))

    def _give(self, output: Output) -> None:
        """Selected messages."""
        rows = output.rows
        if not rows.num_rows:
            return
        ids = rows["connection_id"].to_numpy()
        self._keys.add(_keys(ids, rows["stream_offset"].to_numpy(), _is(rows["direction"], "s2c")))
        self._connections.update(np.unique(ids).tolist())
        for pair in rows["capture_file"].value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        self._emit(output)

    # -- messages that wait for their exchanges --------------------------------------------------------------

    def _hold(self, outputs: list[Output]) -> None:
        self._held += [output for output in outputs if output.rows.num_rows]
        if len(self._held) > MAX_PARTS:
            by_protocol: dict[str | None, list[Output]] = {}
            for output in self._held:
                by_protocol.setdefault(output.protocol, []).append(output)
            self._held = [_joined(some) for some in by_protocol.values()]

    def _settle(self, exchanges: pa.Table | None, over: pa.ChunkedArray | None, first_ns: int) -> None:
        """Decide on messages whose exchanges are known now, or that have none as their connections are over."""
        held, self._held = self._held, []
        for output in held:
            assert output.fields is not None and output.protocol is not None
            beside = None if exchanges is None else exchanges_of(output.rows, exchanges)
            if beside is not None:
                unsettled = ~beside["is_request"].is_valid().to_numpy()
            else:
                assert over is not None
                unsettled = ~true(pc.is_in(output.rows["connection_id"], whole(over)))
                beside = exchanges_of(output.rows, TABLES["exchanges"].empty_table())
            if unsettled.all():
                self._hold([output])
                continue
            mask = self._query.mask(Rows(output.protocol, output.rows, output.fields, beside, unsettled), first_ns)
            self._give(_some(output, true(mask)))
            self._hold([_some(output, pc.is_null(mask).to_numpy(zero_copy_only=False) & unsettled)])

    # -- rows of other tables --------------------------------------------------------------------------------

    def _has(self, rows: pa.Table, offset: str, is_reply: bool) -> NDArray[np.bool_]:
        at = whole(rows[offset])
        side = _is(rows["request_direction"], "s2c") ^ is_reply
        keys = _keys(rows["connection_id"].to_numpy(), pc.fill_null(at, 0).to_numpy(), side)
        return self._keys.have(keys) & true(at.is_valid())

    def _delivered(self, rows: pa.Table) -> NDArray[np.bool_]:
        both = np.ones(rows.num_rows, np.bool_)
        for end, server in (("publish", False), ("deliver", True)):
            ids, at = (rows[f"{end}_{name}"].to_numpy() for name in ("connection_id", "offset"))
            both &= self._keys.have(_keys(ids, at, np.full(len(ids), server)))
        return both

    def _of_connections(self, rows: pa.Table) -> NDArray[np.bool_]:
        return np.array([x in self._connections for x in rows["connection_id"].to_pylist()], np.bool_)

    def _counted(self, output: Output) -> Output:
        """Rows of ``captures`` with the number of selected messages."""
        counts = pa.array([self._counts[path] for path in output.rows["path"].to_pylist()], pa.int64())
        place = output.rows.column_names.index("messages")
        return replace(output, rows=output.rows.set_column(place, "messages", counts))


class _Keys:
    """A set of numbers as sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[I64] = []

    def add(self, keys: I64) -> None:
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def have(self, keys: I64) -> NDArray[np.bool_]:
        found = np.zeros(len(keys), np.bool_)
        for run in self._runs:
            at = run[np.minimum(np.searchsorted(run, keys), len(run) - 1)]
            found |= at == keys
        return found


def _keys(connection_id: I64, offset: I64, from_server: NDArray[np.bool_]) -> I64:
    """A number for each place in a direction of a connection: different within one, as good as so among them."""
    with np.errstate(over="ignore"):
        return connection_id ^ ((2 * offset + from_server) * np.int64(0x1E3779B97F4A7C15))


def _is(column: pa.ChunkedArray, word: str) -> NDArray[np.bool_]:
    return true(pc.equal(column.cast(pa.string()), word))


def _some(output: Output, rows: NDArray[np.bool_]) -> Output:
    if rows.all():
        return output
    mask = pa.array(rows)
    fields = None if output.fields is None else output.fields.filter(mask)
    return replace(output, rows=output.rows.filter(mask), fields=fields)


def _joined(outputs: list[Output]) -> Output:
    """Messages of a protocol in one batch."""
    fields = [output.fields for output in outputs if output.fields is not None]
    tables = (unified(pa.concat_tables(some)).combine_chunks() for some in ([o.rows for o in outputs], fields))
    return replace(outputs[0], **dict(zip(("rows", "fields"), tables, strict=True)))
