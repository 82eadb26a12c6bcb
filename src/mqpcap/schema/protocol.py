"""What a layer file says about its protocol beside its classes.

A layer ends in one ``PROTOCOL``. It says which message comes in which layout, how a connection is recognised, and where
the columns of ``messages`` come from. Where the vocabulary cannot say something it names small pure functions.
``decode``, ``correlate`` and ``tables`` read this; nothing about a protocol stands anywhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from typing import Protocol as Shape

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.schema.requests import CorrelationRule, Roles

if TYPE_CHECKING:
    from mqpcap.schema.message import Message

Direction = Literal["c2s", "s2c"]
DIRECTIONS: tuple[Direction, Direction] = ("c2s", "s2c")
ANY = -1
"""Key of ``Layout.bodies`` and ``Layout.names`` for messages without an operation number."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to read a body, and the dialect of a row read so."""

    message: "type[Message]"
    dialect: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The messages of one direction of a connection (in one of its modes).

    header        class of the bytes every message begins with; None when there are none
    op            its field that holds the operation; None when all messages are alike
    bodies        operation -> the variants tried in order; the first that ends exactly at the end is taken
    names         operation -> its name
    dialect       of rows whose variant names none; None when the connection's evidence says it
    extra_column  column of the bytes behind the last field; None when they are a flaw
    on_bad        what follows bad framing: ``stop`` (the rest is undecoded) or ``search``
    then          operation -> name of the layout of what follows in this direction
    packed        (field, mask): the body is gzip where the header field has a bit of the mask
    searched      name of the layout, stricter than this one, that a search looks for; None: this one
    splitter      finds the message ends where only a look at the neighbours can (kokaq); None: the Program does. Made
                  for the bytes up to a limit, and whether no byte can follow it
    splits        names of the layouts that the splitter finds messages of
    variants      ``bodies``, each a Variant
    """

    name: str
    direction: Direction
    bodies: "Mapping[int, Sequence[Variant | type[Message]]]"
    header: "type[Message] | None" = None
    op: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    dialect: str | None = None
    extra_column: str | None = None
    on_bad: Literal["stop", "search"] = "search"
    then: Mapping[int, str] = field(default_factory=dict)
    packed: tuple[str, int] | None = None
    searched: str | None = None
    splitter: "Callable[[memoryview | bytes, int, bool], Splitter] | None" = None
    splits: tuple[str, ...] = ()
    variants: Mapping[int, tuple[Variant, ...]] = field(init=False)

    def __post_init__(self) -> None:
        made = {
            op: tuple(x if isinstance(x, Variant) else Variant(x) for x in bodies) for op, bodies in self.bodies.items()
        }
        object.__setattr__(self, "variants", made)

    def variants_of(self, op: int) -> tuple[Variant, ...]:
        """The variants of an operation, or else those of any; none for one that the layout does not have."""
        return self.variants.get(op, self.variants.get(ANY, ()))

    def messages(self) -> "list[type[Message]]":
        """The classes that may read a body, whatever its operation."""
        return [variant.message for variants in self.variants.values() for variant in variants]

    def may_leave(self, variant: Variant) -> bool:
        """Whether bytes behind the variant's last field go to ``extra_column``: never those of another dialect."""
        return self.extra_column is not None and variant.dialect in (None, self.dialect)


class Verdict(IntEnum):
    """What a protocol says of a connection's first bytes."""

    NO = 0
    WAIT = 1
    """More bytes may still prove it."""
    LIKELY = 2
    """It fits; enough on the protocol's own port."""
    YES = 3


class Opening(NamedTuple):
    """The first contiguous bytes of both sides, with one side taken as the client.

    A tuple, as a claim is: both are made for every connection, and a frozen dataclass takes five times as long.
    """

    c2s: bytes
    s2c: bytes
    c2s_start: bool
    """The first byte of ``c2s`` is the first of the connection (its SYN was captured)."""
    s2c_start: bool
    c2s_ended: bool
    """No byte can follow ``c2s`` (end of stream, a gap, or the opening's limit)."""
    s2c_ended: bool
    on_port: bool
    """The server port is one of the protocol's, or Decode As says so."""
    decode_as: bool
    find_run: Callable[[Direction, str, int], int | None]
    """``find_run(direction, layout, n)``: the first offset from which n messages of that layout follow in a row
    (or fewer that end exactly at the end of an ended side), None if there is none."""

    def side(self, direction: Direction) -> tuple[bytes, bool, bool]:
        """The bytes of a direction, whether they are its first, and whether they are its last."""
        if direction == "c2s":
            return self.c2s, self.c2s_start, self.c2s_ended
        return self.s2c, self.s2c_start, self.s2c_ended


class Claim(NamedTuple):
    """A verdict, and the layout each direction begins with (None: not known yet)."""

    verdict: Verdict
    c2s: str | None = None
    s2c: str | None = None


class Splitter(Shape):
    """Finds messages in the bytes that it was made for."""

    def scan(self, at: int, *rows: memoryview) -> tuple[int, int, int, int, int]:
        """The messages one after the other from ``at``: see ``bytecode.Scanner.scan``.

        Puts start, end, place in ``Layout.splits``, op and flaw (int64) of each into the five ``rows``. A body whose
        flaw is not 0 is not read. The fifth number returned is the place of the next one's layout, -1 if unknown.
        """

    def search(self, at: int, in_a_row: int) -> tuple[int, bool]:
        """Where ``in_a_row`` messages follow each other: see ``bytecode.Scanner.search``."""


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What a connection as a whole says about its rows, where a row does not say it itself; None says nothing."""

    dialect: str | None = None
    group_name: str | None = None
    client_name: str | None = None
    op_names: Mapping[tuple[Direction, int], str] | None = None
    own: Any = None
    """What the protocol's `derive` wants to know of the connection: see ``Raw.facts``."""
    columns: Mapping[str, str | None] = field(default_factory=dict)
    """Columns of the protocol table that are the same on every row of the connection."""


@dataclass(slots=True)
class Evidence:
    """What the messages of one connection have shown so far: what ``EvidenceRule`` works on.

    shown      the protocol's own; must stay small
    layouts    the layout each direction began with, c2s first
    is_fixed   no later message changes what is resolved: ``observe`` says so, or the look-ahead is over
    """

    connection_id: int
    server_ip: str
    server_port: int
    first_ts_ns: int
    shown: dict[str, Any] = field(default_factory=dict)
    layouts: list[str] = field(default_factory=lambda: ["", ""])
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """What the messages of a connection say of it as a whole, such as its dialect: pure functions of the description.

    Rows of a connection wait until its evidence ``is_fixed``. What is resolved then holds for all of its rows.

    ops       operations (numbers) whose rows are evidence, None for all
    observe   adds rows to what their connections have ``shown``, in order of capture, before any other column of their
              window is read
    resolve   the facts of a connection
    select_layout   the layout that reads the rows of a layout on this connection
    layouts   layouts (as the framing names them) whose rows are evidence, None for all
    tells     whether ``observe`` tells other connections something (``Observation.tell``)
    """

    ops: frozenset[int] | None
    observe: "Callable[[Observation], None]"
    resolve: Callable[[Evidence], ConnectionFacts]
    select_layout: Callable[[Evidence, str], str] | None = None
    layouts: frozenset[str] | None = None
    tells: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that a layer's ``derive`` makes from late spans or other columns."""

    name: str
    type: pa.DataType
    secret: bool = False
    body: bool = False
    hidden: bool = False
    """Only for the ``derive`` of the envelope, not shown in the table."""


@dataclass(frozen=True, slots=True)
class Raw:
    """What ``derive`` gets: n rows as read, before they become Arrow.

    buffer    the bytes
    layout    index of each row's layout in ``layout_names``
    flaw      uint8; may be written to: a row with a flaw loses its columns
    spans     of a byte column (starts, lengths), int64, length -1 where it is absent
    numbers   of an integer column (values, present)
    array     a column of the table, hidden ones too, as Arrow
    items     ``items(list, field)``: of every item of a list column the row, and its value of an integer field
    keep_bodies   bytes of a body that are wanted, None for all: only for text made here that no rule compares
    facts     what the connections of the rows say, as far as it is known; ``of`` is each row's index in it
    """

    n: int
    buffer: NDArray[np.uint8]
    layout: NDArray[np.int32]
    layout_names: Sequence[str]
    flaw: NDArray[np.uint8]
    spans: Callable[[str], tuple[NDArray[np.int64], NDArray[np.int64]]]
    numbers: Callable[[str], tuple[NDArray[np.int64], NDArray[np.bool_]]]
    keep_bodies: int | None
    array: Callable[[str], pa.Array]
    items: Callable[[str, str], tuple[NDArray[np.int64], NDArray[np.int64]]]
    facts: "Sequence[ConnectionFacts]"
    of: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Observation:
    """What ``observe`` gets: ``rows`` of ``raw``, all without a flaw, in order of capture.

    of (index in ``evidence``, one for each connection), from_client (bool), op and ts_ns have an entry for each of
    ``rows``. ``tell(key, evidence, ts_ns, what)`` and ``find(key, evidence, ts_ns)``: what connections of the protocol
    know of each other by a key that both show, None where nobody told it by that time.
    """

    raw: Raw
    rows: NDArray[np.int64]
    evidence: Sequence[Evidence]
    of: NDArray[np.int64]
    from_client: NDArray[np.bool_]
    op: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    tell: Callable[[bytes, Evidence, int, Any], None]
    find: Callable[[bytes, Evidence, int], Any]

    def each(self, *names: str) -> Iterator[tuple[Evidence, Direction, int, int, tuple[Any, ...]]]:
        """Row by row, for evidence that is rare: evidence, direction, op, time, values of the named columns."""
        at = pa.array(self.rows)
        values = zip(*(self.raw.array(name).take(at).to_pylist() for name in names), strict=True)
        numbers = (x.tolist() for x in (self.of, ~self.from_client, self.op, self.ts_ns))
        for of, side, op, ts_ns, row in zip(*numbers, values, strict=True):
            yield self.evidence[of], DIRECTIONS[side], op, ts_ns, row


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where the columns of ``messages`` come from: names of columns of the protocol's table.

    A tuple means the first that is not null. ``derive`` makes what names cannot say: it gets the protocol's Arrow
    table, with ``op``, ``op_code`` and ``direction``, and returns columns of ``messages``. ``reads``: the columns of
    the protocol's table that it looks at; ``derives``: those that it makes.
    """

    destination: str | tuple[str, ...] = ()
    group_name: str | tuple[str, ...] = ()
    client_name: str | tuple[str, ...] = ()
    message_id: str | tuple[str, ...] = ()
    correlation_id: str | tuple[str, ...] = ()
    partition_id: str | tuple[str, ...] = ()
    body: str | tuple[str, ...] = ()
    error_code: str | tuple[str, ...] = ()
    error_text: str | tuple[str, ...] = ()
    derive: Callable[[pa.Table], Mapping[str, pa.Array]] | None = None
    reads: tuple[str, ...] = ()
    derives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class MessageQueue:
    """A protocol: the one thing a layer file exports, as ``PROTOCOL``."""

    name: str
    title: str
    ports: tuple[int, ...]
    dialects: tuple[str, ...]
    layouts: tuple[Layout, ...]
    claims: Callable[[Opening], Claim]
    recognised: str
    """One sentence for people: how connections are told."""
    envelope: Envelope
    evidence: EvidenceRule | None = None
    rule: CorrelationRule | None = None
    roles: Roles = field(default_factory=Roles)
    derived: tuple[Derived, ...] = ()
    derive: Callable[[Raw], Mapping[str, pa.Array]] | None = None
    hidden: tuple[str, ...] = ()
    """Fields read into columns only for ``derive`` and not shown in the table."""
    spare: Mapping[str, int] = field(default_factory=dict)
    """Columns of bytes that the protocol does not describe: they may be a secret, as those of a login whose operation
    was changed are, from so many bytes on or where they begin with a zero byte (of a length)."""

    def __post_init__(self) -> None:
        from mqpcap.schema import message  # the one seam to Scapy; here so that plain data needs none of it

        message.adopt(self)

    def layout(self, name: str) -> Layout:
        """The layout of that name; KeyError if there is none."""
        return {layout.name: layout for layout in self.layouts}[name]
