"""A protocol's declared request rule as tables by code, and the code of each message.

:class:`~mqpcap.schema.requests.CorrelationRule` names operations; :func:`lanes` numbers them, so that a
:class:`~mqpcap.correlate.dialogue.Dialogue` looks up one number a message. A protocol whose requests are told by more
than their operation (BlipMQ, msgq) gives its own tables and codes.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import codes_of, dictionary, is_in, single_array, true_mask
from mqpcap.schema.requests import NO_TIE, CorrelationRule, Lane, RequestKind, RequestRule, RequestTables, State

_KINDS = {"always": RequestKind.FIXED, "maybe": RequestKind.OPTIONAL, "ignored": RequestKind.IGNORED}


@cache
def lanes(rule: CorrelationRule) -> tuple[Lane, ...]:
    """The lanes of a protocol: its rule, and those of operations that keep an order of their own."""
    own = rule.lane() if rule.lane is not None else _declared(rule, True)
    return own, *(_declared(queue, False) for queue in rule.queues)


def _declared(rule: CorrelationRule, others: bool) -> Lane:
    """A lane of a rule that names operations: codes are requests, one-way requests and replies by operation.

    ``others``: whether an operation of the server that it does not name is a reply, too.
    """
    by = {name for ask in (*rule.asks.values(), rule.otherwise) if ask is not None for name in ask.by}
    names = sorted({*rule.asks, *by, *rule.errors, *rule.unasked, *rule.first_only})
    place = {name: i for i, name in enumerate(names)}
    count = len(names) + 1  # and one for every other operation
    asks: list[RequestRule | None] = [rule.asks.get(name) or rule.otherwise for name in names] + [rule.otherwise]
    kind = [RequestKind.NOTHING if ask is None else _KINDS[ask.answer] for ask in asks]
    wants = [_wants(rule, ask, names) for ask in asks]
    one_way = [RequestKind.OPTIONAL if k in (RequestKind.FIXED, RequestKind.OPTIONAL) else k for k in kind]
    bits = [0 if name in rule.unasked else 1 << i for i, name in enumerate(names)] + [others << count]
    none = [0] * count
    tables = RequestTables(
        kind=[bytes([*kind, *one_way, *[RequestKind.NOTHING] * count])],
        wants=[[*wants, *wants, *none]],
        says=[*none, *none, *bits],
        first_only=[False] * (2 * count) + [name in rule.first_only for name in [*names, ""]],
        untied=[False] * (3 * count),
        next_state={},
        silence=[*[State.UNKNOWN] * count, *[State.NOT_EXPECTED] * count, *[State.UNKNOWN] * count],
        ties=bool(rule.tie),
        timed=False,
    )
    tie = rule.tie
    return Lane(
        tables, lambda rows: _codes(rule, rows, place, count), lambda rows, _: _ties(tie, rows),
        lambda rows: [numbers(rows[f"f.{name}"]) for name in tie],
    )  # fmt: skip


def _wants(rule: CorrelationRule, ask: RequestRule | None, names: Sequence[str]) -> int:
    """The bits of the replies that a request may get."""
    if ask is None:
        return 0
    fits = [name not in rule.unasked and (not ask.by or name in rule.errors or name in ask.by) for name in names]
    others = 0 if ask.by else 1 << len(names) + 1
    return others | sum(1 << i for i, fit in enumerate(fits) if fit)


def _codes(rule: CorrelationRule, rows: pa.Table, place: Mapping[str, int], count: int) -> NDArray[np.int64]:
    ops = dictionary(rows["op"])
    coded = np.array([*(place.get(name, count - 1) for name in ops.dictionary.to_pylist()), count - 1], np.int64)
    code = coded.take(codes_of(ops))
    server = ~from_client(rows)
    if rule.one_way is not None:
        column, value = rule.one_way
        code[~server & true_mask(pc.equal(rows[f"f.{column}"], value))] += count
    code[server] += 2 * count
    made: NDArray[np.int64] = code
    return made


def from_client(rows: pa.Table) -> NDArray[np.bool_]:
    """Whether each row is a client's."""
    return is_in(rows["direction"], "c2s")


def _ties(names: Sequence[str], rows: pa.Table) -> NDArray[np.int64]:
    """What a reply repeats of its request, as one number a row."""
    tie, null = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.bool_)
    for name in names:
        with np.errstate(over="ignore"):
            tie = tie * np.int64(0x9E3779B97F4A7C1) + numbers(rows[f"f.{name}"]) + 1
        null |= pc.is_null(rows[f"f.{name}"]).to_numpy()
    tie[null] = NO_TIE
    return tie


def numbers(column: pa.Array | pa.ChunkedArray, null: int = -1) -> NDArray[np.int64]:
    """A column of integers."""
    array = single_array(column).cast(pa.int64())
    found: NDArray[np.int64] = (pc.fill_null(array, null) if array.null_count else array).to_numpy()
    return found
