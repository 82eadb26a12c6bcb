"""The description of a protocol besides its message classes.

A layer ends in its ``PROTOCOL``: layouts with their messages, the recognition of connections, and the sources of the
columns of ``messages``. If the vocabulary is not enough, it names small pure functions.
``decode``, ``correlate`` and ``tables`` read this; nothing about a protocol stands anywhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from typing import Protocol as Shape

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.records import dataclass
from mqpcap.schema.requests import Acknowledgement, CorrelationRule, Roles

if TYPE_CHECKING:
    from mqpcap.schema.message import Message

Direction = Literal["c2s", "s2c"]
DIRECTIONS: tuple[Direction, Direction] = ("c2s", "s2c")
ANY = -1
"""Key of ``Layout.bodies`` and ``Layout.names`` for messages without an operation number."""


def other_direction(direction: str) -> Direction:
    """The direction of the other side's messages."""
    return "s2c" if direction == "c2s" else "c2s"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to read a body, and the dialect of a row read so.

    ``only_framed``: it finds the end of a message that the server refuses. The row is malformed, without fields.
    """

    message: "type[Message]"
    dialect: str | None = None
    only_framed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The messages of a direction of a connection, in a mode of it.

    ``header``: class of the bytes at the start of every message; None without a header.
    ``op``: its field with the operation; None if all messages have the same form.
    ``bodies``: operation -> variants in order; the first that ends exactly at the end is taken.
    ``names``: operation -> its name.
    ``dialect``: of rows whose variant has no dialect; None if the connection's evidence decides.
    ``extra_column``: column of the bytes after the last field; None if they are a flaw.
    ``on_bad``: after bad framing: ``stop`` (later bytes are undecoded) or ``search``.
    ``then``: operation -> name of the layout of later messages in this direction.
    ``packed``: (field, mask): the body is gzip if the header field has a bit of the mask.
    ``searched``: name of the stricter layout for a search; None: this layout.
    ``splitter``: for protocols whose message ends depend on neighbouring messages (kokaq); None: the Program finds
    them. Called with the bytes, their limit, and whether the stream ends there.
    ``splits``: names of the layouts whose messages the splitter finds.
    ``variants``: ``bodies``, each a Variant.
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
        variants = {
            op: tuple(x if isinstance(x, Variant) else Variant(x) for x in bodies) for op, bodies in self.bodies.items()
        }
        object.__setattr__(self, "variants", variants)

    def variants_of(self, op: int) -> tuple[Variant, ...]:
        """The variants of an operation, else the variants of ANY; empty if the layout has neither."""
        return self.variants.get(op, self.variants.get(ANY, ()))

    def messages(self) -> "list[type[Message]]":
        """The classes that may read a body, whatever its operation."""
        return [variant.message for variants in self.variants.values() for variant in variants]

    def may_leave(self, variant: Variant) -> bool:
        """Whether bytes after the variant's last field go to ``extra_column``: not for variants of another dialect."""
        return self.extra_column is not None and variant.dialect in (None, self.dialect)


class Verdict(IntEnum):
    """A protocol's answer to the first bytes of a connection."""

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
    """The server port is a port of the protocol, or set by Decode As."""
    decode_as: bool
    find_run: Callable[[Direction, str, int], int | None]
    """``find_run(direction, layout, n)``: the first offset with n messages of the layout in a row, None without such an
    offset. Fewer messages are enough if they end exactly at the end of an ended side."""

    def side(self, direction: Direction) -> tuple[bytes, bool, bool]:
        """The bytes of a direction, whether they are its first, and whether they are its last."""
        if direction == "c2s":
            return self.c2s, self.c2s_start, self.c2s_ended
        return self.s2c, self.s2c_start, self.s2c_ended


class FirstBytes(NamedTuple):
    """Bytes that a client's stream may begin with: those of ``value`` in the bits of ``mask``, which is empty for all.

    ``answers``: values and masks of what its server may begin with, once as many bytes of both sides are there; any
    bytes without them.
    """

    value: bytes
    mask: bytes = b""
    answers: tuple[tuple[bytes, bytes], ...] = ()


class Claim(NamedTuple):
    """A verdict, and the layout each direction begins with (None: not known yet)."""

    verdict: Verdict
    c2s: str | None = None
    s2c: str | None = None
    opens: bool = False
    """The client's first byte starts a message that only opens a connection: no search, whether a SYN was captured."""


class Splitter(Shape):
    """Finds messages in the bytes that it was made for."""

    def scan(self, offset: int, *rows: memoryview) -> tuple[int, int, int, int, int]:
        """The messages one after the other from ``offset``: see ``bytecode.Scanner.scan``.

        Puts start, end, index in ``Layout.splits``, op and flaw (int64) of each into the five ``rows``. A body whose
        flaw is not 0 is not read. The fifth number returned is the index of the next message's layout, -1 if unknown.
        """

    def search(self, offset: int, min_consecutive: int) -> tuple[int, bool]:
        """First offset with ``min_consecutive`` consecutive messages: see ``bytecode.Scanner.search``."""


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """Values that hold for all rows of a connection and fill columns that a row leaves null; None where unknown."""

    dialect: str | None = None
    group_name: str | None = None
    client_name: str | None = None
    op_names: Mapping[tuple[Direction, int], str] | None = None
    own: Any = None
    """Facts of the connection for the protocol's `derive`: see ``Raw.facts``."""
    columns: Mapping[str, str | None] = field(default_factory=dict)
    """Columns of the protocol table that are the same on every row of the connection."""


@dataclass(slots=True)
class Evidence:
    """Evidence from the messages of a connection up to now, for its ``EvidenceRule``.

    ``state``: data of the protocol; must stay small.
    ``layouts``: the first layout of each direction, c2s first.
    ``is_final``: no later message changes the facts: set by ``observe``, or at the end of the look-ahead.
    ``lookup``: set by ``observe``: the key of a shared fact, and the time until which it must have been shared.
    ``remembered``: texts of each side by their numbers: see `Remembered`.
    """

    connection_id: int
    server_ip: str
    server_port: int
    first_ts_ns: int
    state: dict[str, Any] = field(default_factory=dict)
    layouts: list[str] = field(default_factory=lambda: ["", ""])
    is_final: bool = False
    lookup: tuple[bytes, int] | None = None
    remembered: dict[str, dict[int, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """Pure functions from the messages of a connection to its facts, for example its dialect.

    Rows of a connection wait until its evidence ``is_final``. Its facts then hold for all of its rows.

    ``ops``: operations (numbers) whose rows are evidence, None for all.
    ``observe``: adds rows to ``state`` of their connections, in capture order, before other columns of a window are
    read.
    ``answer``: adds the fact that a connection asked for, None without one; then its evidence is fixed.
    ``resolve``: the facts of a connection.
    ``select_layout``: the layout that reads the rows of a layout on this connection.
    ``layouts``: layouts (as the framing names them) whose rows are evidence, None for all.
    ``shares_facts``: whether ``observe`` shares facts with other connections (``Observation.add_fact``).
    ``told_by``: a byte-sized column, and the key of ``state`` that gets its value: ``select_layout`` needs no more.
    """

    ops: frozenset[int] | None
    observe: "Callable[[Observation], None]"
    resolve: Callable[[Evidence], ConnectionFacts]
    select_layout: Callable[[Evidence, str], str] | None = None
    layouts: frozenset[str] | None = None
    shares_facts: bool = False
    answer: Callable[[Evidence, Any], None] | None = None
    told_by: tuple[str, str] | None = None


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
class Remembered:
    """A text that a side sends once with a number, and later by the number alone: a topic alias.

    ``text``, ``key``: columns of the text and of its number; ``LIST.FIELD`` is a number in the items of a list: the
    first item with one, or with ``item``=(field, value) the first whose field has this value.
    ``empty``: the text of a message that has the number alone.
    ``name``: the column with the texts, for the envelope: the text, or the last that the side sent with the number, as
    far as nothing is missing between; else null.
    """

    text: str
    key: str
    empty: bytes = b""
    item: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The column with the texts. It is not shown in the table."""
        return f"resolved_{self.text}"


@dataclass(frozen=True, slots=True)
class Raw:
    """Input of ``derive``: n rows as read, before they become Arrow.

    ``buffer``: the bytes.
    ``layout``: index of each row's layout in ``layout_names``.
    ``flaw``: uint8, writable: a row with a flaw loses its columns.
    ``spans``: (starts, lengths) of a byte column, int64, length -1 if it is absent.
    ``numbers``: (values, present) of an integer column.
    ``array``: a column of the table, also a hidden column, as Arrow.
    ``items``: ``items(list, field)``: for every item of a list column its row, and the value of an integer field.
    ``keep_bodies``: bytes of a body to keep, None for all: only for text that no rule compares.
    ``facts``: facts of the rows' connections, as far as known; ``of`` is each row's index in them.
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
    connection_index: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of ``observe``: ``rows`` of ``raw``, all without a flaw, in capture order.

    connection_index (into ``evidence``), from_client (bool), op and ts_ns have an entry for each of ``rows``.
    ``add_fact(key, evidence, ts_ns, what)`` shares a fact with the protocol's other connections under a key.
    ``fits(suffix)``: which of ``rows`` the layout reads whose name is the row's layout and this suffix.
    """

    raw: Raw
    rows: NDArray[np.int64]
    evidence: Sequence[Evidence]
    connection_index: NDArray[np.int64]
    from_client: NDArray[np.bool_]
    op: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    add_fact: Callable[[bytes, Evidence, int, Any], None]
    fits: Callable[[str], NDArray[np.bool_]]

    def each(self, *names: str) -> Iterator[tuple[Evidence, Direction, int, int, tuple[Any, ...]]]:
        """Row by row, for evidence that is rare: evidence, direction, op, time, values of the named columns."""
        rows = pa.array(self.rows)
        values = zip(*(self.raw.array(name).take(rows).to_pylist() for name in names), strict=True)
        numbers = (x.tolist() for x in (self.connection_index, ~self.from_client, self.op, self.ts_ns))
        for index, side, op, ts_ns, row in zip(*numbers, values, strict=True):
            yield self.evidence[index], DIRECTIONS[side], op, ts_ns, row


@dataclass(frozen=True, slots=True)
class Envelope:
    """Sources of the columns of ``messages``: names of columns of the protocol's table.

    A tuple means the first value that is not null. ``derive`` makes columns of ``messages`` that have no single source.
    It gets the protocol's Arrow table, with ``op``, ``op_code`` and ``direction``. ``reads``: the columns of the
    protocol's table that it needs; ``derives``: the columns that it makes.
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
    """A protocol: the only export of a layer file, as ``PROTOCOL``."""

    name: str
    title: str
    ports: tuple[int, ...]
    dialects: tuple[str, ...]
    layouts: tuple[Layout, ...]
    claims: Callable[[Opening], Claim]
    """Asked about a connection unless all protocols' ``openings`` exclude it, or ``first_claim`` answers."""
    recognised: str
    """A sentence for people: how connections are recognised."""
    envelope: Envelope
    evidence: EvidenceRule | None = None
    rule: CorrelationRule | None = None
    roles: Roles = field(default_factory=Roles)
    remembered: tuple[Remembered, ...] = ()
    """Texts that connections remember."""
    derived: tuple[Derived, ...] = ()
    derive: Callable[[Raw], Mapping[str, pa.Array]] | None = None
    hidden: tuple[str, ...] = ()
    """Fields read into columns only for ``derive`` and not shown in the table."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """The content of each column of its table, by name. Units and names of numbers are added."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts that questions ask for (`mqpcap.queries.DETAILS`), each an SQL expression of the columns of its table."""
    words: Mapping[str, str] = field(default_factory=dict)
    """By column a regular expression of the texts that are the protocol's own, or its programs': they name nobody."""
    keys: frozenset[str] = frozenset()
    """Keys of its messages that are the protocol's own."""
    acknowledgement: Acknowledgement | None = None
    """How clients acknowledge deliveries; None if they do not."""
    items: str = ""
    """The list column with the messages inside a reply, a dot, and the field that identifies each."""
    openings: tuple[FirstBytes, ...] = (FirstBytes(b""),)
    """First bytes of a client that a handshake shows and that speaks before its server; any bytes by default."""
    first_claim: Callable[[bytes], Claim | None] | None = None
    """The claim of a first packet of a client, on the protocol's port, that is YES whatever follows; else None."""
    searches_on_port: bool = False
    """On its ports a connection may be its own whatever it begins with."""
    spare: Mapping[str, int] = field(default_factory=dict)
    """Byte columns without a defined content, by minimum length.

    A value that long, or starting with a zero byte (a length field), may be a secret (a login with a damaged operation
    byte) and is masked."""

    def __post_init__(self) -> None:
        from mqpcap.schema import message  # the only import of Scapy: plain data does not need it

        message.register_protocol(self)

    @property
    def redelivered(self) -> tuple[str, int] | None:
        """The column and value that mark what a client was sent before, None without a mark."""
        return None if self.rule is None or self.rule.deliveries is None else self.rule.deliveries.redelivered

    def layout(self, name: str) -> Layout:
        """The layout of that name; KeyError if there is none."""
        return {layout.name: layout for layout in self.layouts}[name]
