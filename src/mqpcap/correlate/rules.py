"""Turns the declared request rule of a protocol into tables by code.

In: a `CorrelationRule`, which names operations. Out: `RequestGroup` objects, whose functions give each row a code.
Called by: ``exchanges``; ``spark.streaming``, for the columns that pairing needs.

A matcher looks up one number a message. If more than the operation decides how a request is answered (BlipMQ, msgq),
the protocol gives its own tables and codes.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import codes_of, dictionary, is_in, single_array, true_mask
from mqpcap.schema.requests import (
    ANY_OPERATION,
    NO_ECHO_KEY,
    CorrelationRule,
    Fingerprints,
    RequestGroup,
    RequestKind,
    RequestRule,
    RequestTables,
    State,
)

MIX = np.int64(0x9E3779B97F4A7C1)
"""Factor that makes one number of several."""
_KINDS = {"always": RequestKind.ONE_REPLY, "maybe": RequestKind.OPTIONAL_REPLY, "ignored": RequestKind.ONE_WAY}


@cache
def request_groups(rule: CorrelationRule) -> tuple[RequestGroup, ...]:
    """The request groups of a protocol: its own rule, and those of operations that keep an order of their own."""
    own_group = rule.request_group() if rule.request_group is not None else _declared(rule, True)
    return own_group, *(_declared(queue, False) for queue in rule.queues)


def _declared(rule: CorrelationRule, accepts_others: bool) -> RequestGroup:
    """The group of a rule that names operations: codes are requests, one-way requests, replies, requests again.

    ``accepts_others``: whether a server operation without a name in the rule is a reply, too.
    """
    reply_names = {name for ask in (*rule.asks.values(), rule.otherwise) if ask is not None for name in ask.by}
    names = sorted({*rule.asks, *reply_names, *rule.errors, *rule.unasked, *rule.first_only})
    indexes = {name: i for i, name in enumerate(names)}
    count = len(names) + 1  # and one for every other operation
    asks: list[RequestRule | None] = [rule.asks.get(name) or rule.otherwise for name in names] + [rule.otherwise]
    kind = [RequestKind.NOT_A_REQUEST if ask is None else _KINDS[ask.answer] for ask in asks]
    accepted = [_accepted(rule, ask, names) for ask in asks]
    # Without an id that a reply could repeat it gets none.
    unanswered = RequestKind.ONE_WAY if rule.held else RequestKind.OPTIONAL_REPLY
    one_way = [unanswered if k in (RequestKind.ONE_REPLY, RequestKind.OPTIONAL_REPLY) else k for k in kind]
    if rule.side == "s2c":  # a message of the server that needs no answer is not a request
        one_way = [RequestKind.NOT_A_REQUEST] * count
    bits = [0 if name in rule.unasked else 1 << i for i, name in enumerate(names)] + [accepts_others << count]
    zeros = [0] * count
    tables = RequestTables(
        kind=[bytes([*kind, *one_way, *[RequestKind.NOT_A_REQUEST] * count, *kind])],
        accepted_replies=[[*accepted, *accepted, *zeros, *accepted]],
        reply_bits=[*zeros, *zeros, *bits, *zeros],
        first_only=[False] * (2 * count) + [name in rule.first_only for name in [*names, ""]] + [False] * count,
        echoes_nothing=[False] * (4 * count),
        next_state={},
        silence=[*[State.UNKNOWN] * count, *[State.NOT_EXPECTED] * count, *[State.UNKNOWN] * (2 * count)],
        echoes=bool(rule.tie),
        by_name=rule.by_name,
        held=rule.held,
        again=frozenset(range(3 * count, 4 * count)),
        habits=rule.habits,
        early=frozenset(
            code for code in range(2 * count) if rule.habits.early & {ANY_OPERATION, *names[code % count :][:1]}
        ),
    )
    # Partials, not lambdas: the state of a pipeline can be pickled.
    codes = partial(_codes, rule, indexes, count)
    echo_keys = partial(_repeated_keys, rule) if rule.repeats else partial(_echo_keys, rule.tie)
    return RequestGroup(tables, codes, echo_keys, _without_ids, side=rule.side)


def _accepted(rule: CorrelationRule, ask: RequestRule | None, names: Sequence[str]) -> int:
    """The bits of the replies that a request accepts."""
    if ask is None:
        return 0
    fits = [name not in rule.unasked and (not ask.by or name in rule.errors or name in ask.by) for name in names]
    accepts_others = 0 if ask.by else 1 << len(names) + 1
    return accepts_others | sum(1 << i for i, fit in enumerate(fits) if fit)


def _codes(rule: CorrelationRule, indexes: Mapping[str, int], count: int, rows: pa.Table) -> NDArray[np.int64]:
    ops = dictionary(rows["op"])
    coded = np.array([*(indexes.get(name, count - 1) for name in ops.dictionary.to_pylist()), count - 1], np.int64)
    code = coded.take(codes_of(ops))
    server = ~is_in(rows["direction"], rule.side)
    for name, mark in rule.again.items():
        is_again = (
            code == indexes[name] if mark is None else (code == indexes[name]) & is_in(rows[f"f.{mark[0]}"], mark[1])
        )
        code[~server & is_again] += 3 * count
    if rule.one_way is not None:
        column, value = rule.one_way
        one_way = ~server & true_mask(pc.equal(rows[f"f.{column}"], value))
        code[one_way] = code[one_way] % count + count
    code[server] += 2 * count
    codes: NDArray[np.int64] = code
    return codes


def from_client(rows: pa.Table) -> NDArray[np.bool_]:
    """Whether each row is a client's."""
    return is_in(rows["direction"], "c2s")


def _without_ids(rows: pa.Table) -> NDArray[np.bool_]:
    return np.zeros(rows.num_rows, np.bool_)


def _echo_keys(names: Sequence[str], rows: pa.Table, _: Fingerprints) -> NDArray[np.int64]:
    """The values that a reply repeats of its request, as one number a row."""
    tie, null = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.bool_)
    for name in names:
        with np.errstate(over="ignore"):
            tie = tie * MIX + numbers(rows[f"f.{name}"]) + 1
        null |= pc.is_null(rows[f"f.{name}"]).to_numpy()
    tie[null] = NO_ECHO_KEY
    return tie


def _repeated_keys(rule: CorrelationRule, rows: pa.Table, prints: Fingerprints) -> NDArray[np.int64]:
    """The values that the replies of an operation repeat of its requests, as one number a row."""
    keys, is_client, ops = np.full(rows.num_rows, NO_ECHO_KEY), from_client(rows), dictionary(rows["op"])
    captured = {*ops.dictionary.to_pylist()}
    for requests, repeated in rule.repeats.items():
        replies = frozenset().union(*(rule.asks[op].by for op in requests))
        for is_side, names, columns in (
            (is_client, requests, repeated.keys()),
            (~is_client, replies, repeated.values()),
        ):
            if names & captured:
                index = np.flatnonzero(is_side & is_in(ops, *names))
                keys[index] = _fingerprint([single_array(rows[f"f.{name}"]).take(index) for name in columns], prints)
    return keys


def _fingerprint(columns: Sequence[pa.Array], prints: Fingerprints) -> NDArray[np.int64]:
    """One number for the values of each row; NO_ECHO_KEY if a value is null."""
    key, is_null = np.zeros(len(columns[0]), np.int64), np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        is_number = pa.types.is_integer(column.type)
        with np.errstate(over="ignore"):
            # A length of -1 is that of no value: it is repeated of an empty one.
            key = key * MIX + (np.maximum(numbers(column), 0) if is_number else prints(column))
        is_null |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return np.where(is_null, NO_ECHO_KEY, key)


def numbers(column: pa.Array | pa.ChunkedArray, null: int = -1) -> NDArray[np.int64]:
    """A column of integers."""
    array = single_array(column).cast(pa.int64())
    integers: NDArray[np.int64] = (pc.fill_null(array, null) if array.null_count else array).to_numpy()
    return integers
