"""Refuses fields that the Scapy classes and the interpreter would read differently.

In: a field of a message class, and the earlier fields of that class. Out: why the field is refused, None if it is not.
Called by: ``compiler``, for each field at import.

The interpreter works with signed integers of 64 bits, and its words have 32. Scapy's classes work with Python's
integers. A description may only use what both can hold, and must not leave open which of two readings counts.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from mqpcap.schema import fields
from mqpcap.schema.message import HEADER, Message

MAX_I64 = (1 << 63) - 1
MAX_U64 = (1 << 64) - 1
MAX_WORD = (1 << 31) - 1
"""Largest size, mask or shift in a word of the Program."""
MAX_INTEGER_BYTES = 8
MAX_VARIABLE_BYTES = 10
"""Bytes with seven bits each that hold 64 bits."""


def refusal(field: fields.Kind, earlier: Mapping[str, fields.Kind]) -> str | None:
    """Why a field cannot be compiled; ``earlier`` are the fields of its class that come before it."""
    return next(_reasons(field, earlier), None)


def _reasons(field: fields.Kind, earlier: Mapping[str, fields.Kind]) -> Iterator[str]:
    if field.name in earlier:
        yield "an earlier field has the same name"
    if both := _columns([field]) & _columns([kind for name, kind in earlier.items() if not name.startswith(HEADER)]):
        yield f"an earlier field has the same column {min(both)}; give one of them column="
    condition = field
    while isinstance(condition, fields.If):
        yield from _of_condition(condition, earlier)
        condition = condition.kind
    kind = fields.bare(field)
    if not isinstance(kind, fields.Span) and (kind.secret or kind.body):
        yield f"only text and bytes can be {'secret' if kind.secret else 'a body'}; in a list its items can"
    if isinstance(kind, fields.Number):
        yield from _of_number(kind)
    elif isinstance(kind, fields.Bits):
        yield from _of_bits(kind, earlier)
    elif isinstance(kind, fields.Sized):
        yield from _of_size(kind, earlier)
    if isinstance(kind, fields.Array):
        yield from _of_list(kind)


def columns_of(cls: type[Message]) -> frozenset[str]:
    """The columns that each message of a class fills, those of nested messages included."""
    return _columns(fields.wire_fields(cls))


def _columns(kinds: Collection[fields.Kind]) -> frozenset[str]:
    # Only one of several fields with conditions may be present.
    columns = {x.column for x in kinds if x.column is not None and not isinstance(x, fields.If)}
    return frozenset(columns).union(*(columns_of(x.message) for x in kinds if isinstance(x, fields.Nested)))


def value_range(kind: object) -> tuple[int, int] | None:
    """The smallest and the largest value of a number or of bits; None for other kinds."""
    if isinstance(kind, fields.Number):
        return (0, 1) if kind.truth else kind.value_range
    return (0, kind.mask) if isinstance(kind, fields.Bits) else None


def _of_number(kind: fields.Number) -> Iterator[str]:
    low, high = kind.value_range
    number = kind.kind if isinstance(kind, fields.Length) else kind
    max_bytes = MAX_VARIABLE_BYTES - (getattr(number, "order", "little") == "big")
    if isinstance(number, fields.VarUint) and not 1 <= number.at_most_bytes <= max_bytes:
        yield f"it has one to {MAX_VARIABLE_BYTES} bytes, to 9 with order big"
    bounds = [x for x in (kind.at_least, kind.at_most) if x is not None]
    if kind.truth and kind.among is not None:
        yield "a truth value is true or false"
    if any(not low <= x <= high for x in [*bounds, *(kind.among or ())]):
        yield f"its bounds are not within {low} to {high}"
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        yield "at_least is above at_most"
    # Compared as signed numbers: a value with the top bit is below every other.
    if high > MAX_I64 and kind.equals is None and bounds and not 0 <= (kind.at_most or -1) <= MAX_I64:
        yield "a bounded number of eight bytes needs at_most up to 2**63 - 1"


def _of_bits(kind: fields.Bits, earlier: Mapping[str, fields.Kind]) -> Iterator[str]:
    number = earlier.get(kind.of)
    if not 0 < kind.mask <= MAX_WORD or not 0 <= kind.shift < 64:
        yield "its mask has up to 31 bits, and is shifted by up to 63"
    _, high = value_range(number) or (0, MAX_I64)
    if isinstance(number, fields.Number) and (number.truth or number.value_range[0] < 0):
        yield f"{kind.of} is no unsigned number"
    elif kind.mask << kind.shift > high:
        yield f"it has bits that {kind.of} has not"


def _of_condition(field: fields.If, earlier: Mapping[str, fields.Kind]) -> Iterator[str]:
    tests = [field.left, field.follows, field.equals, field.has, field.unless]
    if sum(x is not None for x in tests) > 1 or (field.when is not None and tests[:2] != [None, None]):
        yield "it has two conditions"
    if field.follows is not None and not 1 <= len(field.follows) <= MAX_INTEGER_BYTES:
        yield "follows has one to eight bytes"
    tested = earlier.get(field.when or "")
    low, high = value_range(fields.bare(tested) if tested is not None else None) or (0, MAX_I64)
    if isinstance(tested, fields.If) and (low < 0 or high > MAX_I64):
        yield f"{field.when} may be absent, and has all 64 bits"
    if field.has is not None and not 0 < field.has <= high:
        yield f"{field.when} has no such bit"
    value = field.equals if field.unless is None else field.unless
    values = [] if value is None or isinstance(value, bytes) else [value] if isinstance(value, int) else value
    for x in values:
        if not low <= x <= high:
            yield f"{field.when} is never {x}"
    if field.left is not None and not 0 <= field.left <= MAX_I64:
        yield "left counts bytes"


def _of_size(kind: fields.Sized, earlier: Mapping[str, fields.Kind]) -> Iterator[str]:
    if (prefix := kind.prefix_kind) is not None:
        yield from _of_number(prefix)
        if prefix.truth:
            yield f"{type(prefix).__name__} is no kind of a length or count"
    sizes = {name: getattr(kind, name, None) for name in ("sized_by", "prefix", "size", "until", "until_zero")}
    given = {name: value for name, value in sizes.items() if value is not None}
    if len(given) > 1:
        yield "it has two lengths or counts"
    if getattr(earlier.get(kind.sized_by or ""), "truth", False):
        yield f"{kind.sized_by} is a truth value, no length or count"
    for name in ("prefix", "until_zero"):
        if isinstance(n := given.get(name, 1), int) and not 1 <= n <= MAX_INTEGER_BYTES:
            yield f"{name} has one to eight bytes"
    if not 0 <= given.get("size", 0) <= MAX_WORD or not 0 <= given.get("until", 0) <= 255:
        yield "its size or delimiter is out of range"
    bounds = [x for name in ("at_least", "at_most") if (x := getattr(kind, name, None)) is not None]
    if bounds != sorted(bounds) or any(not 0 <= x <= MAX_I64 for x in bounds):
        yield "its bounds are no lengths"


def _of_list(kind: fields.Array) -> Iterator[str]:
    if fields.smallest(kind.item) > MAX_WORD:
        yield "its items are too large"
    is_counted = kind.prefix is not None or kind.sized_by is not None
    if fields.smallest(kind.item) == 0 and (is_counted or not _takes_any(kind.item)):
        # Nothing in the bytes would bound how many there are.
        yield "its items may be empty"
    if isinstance(kind.item, fields.Kind):
        yield from _reasons(cast(fields.Kind, kind.item), {})


def _takes_any(item: "fields.Kind | type[Message]") -> bool:
    """Whether an item that may be empty takes at least one byte where there is one: text up to a delimiter does."""
    field = item if isinstance(item, fields.Kind) else next(iter(fields.wire_fields(item)), None)
    if not isinstance(field, fields.Span):
        return False
    return field.size is None and field.sized_by is None and field.prefix is None
