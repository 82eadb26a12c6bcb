"""Inputs to captures that are read, and what the exit code must remember of them.

What cannot be read is said when everything else is done.
"""

import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from mqpcap.errors import CaptureError, FailedCaptureError, MqpcapError, OutputError, QueryError, RowError
from mqpcap.records import dataclass
from mqpcap.wording import counted, error_line, extra_line, in_number, is_out_of_memory, plural, size

if TYPE_CHECKING:
    import pyarrow as pa

    from mqpcap.background import Background
    from mqpcap.capture import Capture
    from mqpcap.decode.detection import DecodeAs
    from mqpcap.hooks import StageHooks
    from mqpcap.options import Options
    from mqpcap.pipeline import CapturePipeline
    from mqpcap.query import MatchTally, Query
    from mqpcap.tables.export import ExportSummary
    from mqpcap.tables.output import Output
    from mqpcap.tls import KeyLog

SMALL_BYTES = 1 << 20
"""Captures below this are read sooner than a thread and its modules are loaded."""
READ_FOR_NOTES = frozenset({"protocol", "flaw"})
"""The columns of ``messages`` that notes are made of where no Decode As was asked for."""


_LIMIT_NOTES = {
    "reorder_cap": "out-of-order data passed the memory cap {} [time|times]; holes were given up early",
    "damaged_strays": "{} [packet|packets] with a wrong IP header checksum [belongs|belong] to no connection; "
    "[it is|they are] left out",
    "evicted_open": "{} open [connection was|connections were] ended to make room; "
    "what follows of [it is a connection of its|them are connections of their] own",
    "history_shrunk": "the history of sent bytes was shortened {} [time|times]; "
    "older retransmissions were not compared",
    "forgotten_facts": "{} [login was|logins were] forgotten to make room; "
    "messages of later connections may be without theirs",
    "ambiguous_deliveries": "{} [delivery fits|deliveries fit] several publishes, so [it has|they have] no row",
    "missed_deliveries": "{} [delivery|deliveries] may be of publishes that were forgotten to make room; "
    "[it has|they have] no row",
    "early_deliveries": "{} [delivery|deliveries] did not wait for publishes that were read later; some have no row",
    "stamped_before_publish": "{} [delivery is|deliveries are] stamped before [its publish|their publishes], "
    "so [it has|these have] no latency",
    "clock_contradictions": "{} [reply is|replies are] stamped before [its request|their requests], "
    "so [it has|these have] no latency",
    "tls_no_key": "{} TLS [connection has|connections have] no secrets in the key log",
    "tls_secrets_gone": "{} TLS [connection goes|connections go] on in files without [its|their] secrets; "
    "--keylog opens [it|them]",
    "tls_wrong_keys": "the secrets of {} TLS [connection|connections] do not open [it|them]",
    "tls_no_room": "{} TLS [connection was|connections were] not opened to save memory",
    "tls_no_library": f"{{}} [block|blocks] of TLS secrets in the capture [is|are] not used: {extra_line('tls')}",
    "tls_cipher": "{} TLS [connection has|connections have] a cipher that is not opened",
    "tls_forgotten": "the secrets of {} [session|sessions] in the key log were forgotten to make room",
    "clock_difference_ns": "the clocks of two interfaces differ by {} ms or more",
}
"""By count: the note on a limit that was reached, for `wording.in_number`."""

Meter = Callable[[int], None]
"""Progress: called with a number of bytes that were read."""
SMALLEST_MEMORY_BYTES = 1 << 20


class ReadingOptions(TypedDict, total=False):
    """The options of all calls; see ``mqpcap.open``."""

    decode_as: Mapping[int, str] | None
    show_secrets: bool
    bodies: int | Literal["full", "none"] | None
    max_memory_bytes: int | None
    jobs: int | None
    keylog: "str | os.PathLike[str] | None"
    one: bool


class CallOptions(ReadingOptions, total=False):
    """The options of calls that are commands, too; see ``mqpcap.api``."""

    progress: Meter
    notes: list[str] | None


class FilterOptions(CallOptions, total=False):
    """The options of calls that select messages: also the words of the commands, as ``op="PUBLISH"``."""

    protocol: str | Sequence[str] | None
    op: str | Sequence[str] | None
    client: str | Sequence[str] | None
    server: str | Sequence[str] | None
    connection: str | Sequence[str] | None
    topic: str | Sequence[str] | None
    grep: str | Sequence[str] | None
    status: str | None
    flawed: bool
    unanswered: bool
    slower_than: str | None
    since: str | None
    until: str | None


@dataclass(frozen=True, slots=True)
class Choices:
    """Values of the common options.

    bodies: bytes of a body that are kept, None for all. jobs, max_memory_bytes: None is ours to choose.
    """

    decode_as: "tuple[DecodeAs, ...]" = ()
    show_secrets: bool = False
    bodies: int | None = None
    jobs: int | None = None
    max_memory_bytes: int | None = None
    strict: bool = False
    quiet: bool = False
    wanted: "Query | None" = None
    """Which messages, where a command takes this with its choices."""
    keys: "KeyLog | None" = None
    """The secrets of TLS sessions, the same for all captures of a run."""
    is_one: bool = False
    """Whether all inputs are one recording."""

    @property
    def core_count(self) -> int:
        """How many cores may be used."""
        return self.jobs or os.cpu_count() or 1

    def dissection(self, side_by_side_count: int = 1, only: frozenset[str] | None = None) -> "Options":
        """Options of one of several dissections that share the memory; ``only``: the optional tables to make."""
        from mqpcap.options import OPTIONAL_TABLES, Options
        from mqpcap.tables.messages import RowPolicy
        from mqpcap.tcp.reassembly import MAX_BYTES

        memory_bytes = (self.max_memory_bytes or MAX_BYTES) // side_by_side_count
        return Options(
            self.decode_as,
            RowPolicy(self.show_secrets, self.bodies),
            max(memory_bytes, SMALLEST_MEMORY_BYTES),
            self.keys,
            optional_tables=OPTIONAL_TABLES if only is None else only,
        )


def checked_choices(
    decode_as: Mapping[int, str] | None = None,
    show_secrets: bool = False,
    bodies: int | Literal["full", "none"] | None = None,
    max_memory_bytes: int | None = None,
    jobs: int | None = None,
    keylog: "str | os.PathLike[str] | None" = None,
    one: bool = False,
) -> Choices:
    """The values of the common options; see ``mqpcap.open``. Raises ValueError or TypeError for a wrong one."""
    from mqpcap.decode.detection import DecodeAs

    rules = tuple(DecodeAs(_port(port), _protocol_or_tunnel(name)) for port, name in (decode_as or {}).items())
    for option, value in (("show_secrets", show_secrets), ("one", one)):
        if not isinstance(value, bool):
            raise TypeError(f"{option} is True or False, not {value!r}")
    body_bytes = {"full": None, "none": 0}[bodies] if bodies in ("full", "none") else bodies
    return Choices(
        rules,
        show_secrets,
        None if body_bytes is None else whole_number("bodies", body_bytes, 0),
        None if jobs is None else whole_number("jobs", jobs, 1),
        None if max_memory_bytes is None else whole_number("max_memory_bytes", max_memory_bytes, SMALLEST_MEMORY_BYTES),
        keys=None if keylog is None else key_log(os.fspath(keylog)),
        is_one=one,
    )


def key_log(path: str) -> "KeyLog":
    """The secrets in a key log. Raises CaptureError if it cannot be read, holds none, or cannot be used."""
    from mqpcap.tls import KeyLog

    return KeyLog.opened(path)


def decode_as_rule(rule: str) -> "DecodeAs":
    """The rule of ``tcp.port==9092,flymq`` or ``udp.port==4799,vxlan``. Raises ValueError for another text."""
    from mqpcap.decode.detection import DecodeAs
    from mqpcap.protocols import checked_protocol

    match = re.fullmatch(r"(tcp|udp)\.port\s*==\s*(\d{1,5})\s*,\s*(\S+)", rule.strip())
    if match is None:
        raise ValueError(f"{rule!r} is no rule like tcp.port==9092,flymq or udp.port==4799,vxlan")
    if not 1 <= int(match[2]) <= 65535:
        raise ValueError(f"{match[2]} is no {match[1].upper()} port")
    return DecodeAs(int(match[2]), (checked_tunnel if match[1] == "udp" else checked_protocol)(match[3]))


def checked_tunnel(name: str) -> str:
    """The name of a tunnel in UDP, which may be written in any case. Raises ValueError for another name."""
    from mqpcap.tcp.wrappings import TUNNELS

    if name.lower() not in TUNNELS:
        raise ValueError(f"{name!r} is no tunnel; there are {', '.join(sorted(TUNNELS))}")
    return name.lower()


def _protocol_or_tunnel(name: str) -> str:
    from mqpcap.protocols import checked_protocol

    try:
        return checked_protocol(name)
    except ValueError:
        with suppress(ValueError):
            return checked_tunnel(name)
        raise


def _port(port: Any) -> int:
    try:
        number = -1 if isinstance(port, bool) else operator.index(port)
    except TypeError:
        number = -1
    if not 1 <= number <= 65535:
        raise ValueError(f"{port!r} is not a TCP port: keys of decode_as are integers, as in {{9092: 'flymq'}}")
    return number


def whole_number(option: str, value: Any, at_least: int) -> int:
    """The value of an option that is an integer. Raises ValueError or TypeError for another value."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{option} is an integer, not {value!r}") from None
    if isinstance(value, bool) or count < at_least:
        raise ValueError(f"{option} is at least {at_least}, not {value!r}")
    return count


@dataclass(slots=True)
class Outcome:
    """What happened to the inputs."""

    choices: Choices
    is_whole: bool = False
    """Whether all was looked at, so that nothing found is worth a note."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    """In an export: files of captures that are left out of it, and the reason."""
    messages: Counter[str] = field(default_factory=Counter)
    """By protocol."""
    flaws: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    capture_count: int = 0
    file_count: int = 0
    dissected_count: int = 0
    """Captures with packets that an export read."""
    problem_bytes: Counter[str] = field(default_factory=Counter)
    """In an export, by kind."""
    started_inside: Counter[str] = field(default_factory=Counter)
    """In an export, by capture: connections of a supported protocol without their SYN."""
    tally: "MatchTally | None" = None
    """Matches of the filter."""
    read_as: Counter[int] = field(default_factory=Counter)
    """Connections by server port that Decode As had read as a protocol, and ports of messages that did decode."""
    sound_ports: set[int] = field(default_factory=set)

    def add(self, part: "Outcome") -> None:
        """Add the outcome of a part of an export."""
        self.dissected_count += part.dissected_count
        self.flaws += part.flaws
        self.problem_bytes += part.problem_bytes
        self.started_inside += part.started_inside
        self.notes += part.notes
        self.unreadable += part.unreadable
        self.failed += part.failed
        self.messages += part.messages
        self.read_as += part.read_as
        self.sound_ports |= part.sound_ports
        if part.tally is not None:
            self.tally = part.tally if self.tally is None else self.tally.added(part.tally)

    def look(self, output: "Output") -> None:
        """Take in rows of any table."""
        if output.table == "messages":
            self.take(output.rows)
        elif output.table == "connections" and self.choices.decode_as:
            rows = output.rows
            pairs = zip(rows["identified_by"].to_pylist(), rows["server_port"].to_pylist(), strict=True)
            self.read_as.update(port for how, port in pairs if how == "decode_as")

    def described(self, summary: "ExportSummary") -> "ExportSummary":
        """The summary of an export, with its source and its losses in words."""
        kinds = ("undecoded", "gap", "conflict")
        undecoded, gaps, conflicts = (size(self.problem_bytes[kind]) for kind in kinds)
        flaws = counted(sorted(self.flaws.items()))
        return replace(
            summary,
            source=f"{plural(self.capture_count, 'capture')} ({plural(self.file_count, 'file')})",
            losses=f"flaws: {flaws}; undecoded: {undecoded}; gaps: {gaps}; conflicts: {conflicts}",
        )

    @property
    def match_count(self) -> int:
        """Messages that match the filter; without one all messages."""
        return self.messages.total() if self.tally is None else self.tally.match_count

    def notes_of_nothing(self) -> list[str]:
        """What to say where nothing came of a capture, or of a rule of Decode As."""
        from mqpcap.tcp.wrappings import TUNNELS

        notes = []
        for rule in self.choices.decode_as:
            if rule.protocol in TUNNELS:
                continue
            name, count = f"-d tcp.port=={rule.port},{rule.protocol}", self.read_as[rule.port]
            if not count:
                notes.append(f"{name}: no connection of that server port")
            elif rule.port not in self.sound_ports:
                notes.append(f"{name}: nothing of {plural(count, 'connection')} decodes so; is it {rule.protocol}?")
        if not notes and self.capture_count and not self.messages:
            notes.append("nothing of ours; see info")
        return notes

    def final_notes(self) -> list[str]:
        """The notes, with those that are known at the end only."""
        notes = [*self.notes, *(self.notes_of_nothing() if self.is_whole else [])]
        return notes if self.tally is None or self.tally.note is None else [*notes, self.tally.note]

    def take(self, messages: "pa.Table") -> None:
        """Count messages of a protocol, and their flaws."""
        if messages.num_rows:
            self.messages[messages["protocol"][0].as_py()] += messages.num_rows
        if self.choices.decode_as:
            sound = messages.filter(messages["flaw"].is_null())
            self.sound_ports.update(*(sound[name].unique().to_pylist() for name in ("src_port", "dst_port")))
        for pair in messages["flaw"].value_counts().to_pylist():
            if pair["values"] is not None:
                self.flaws[pair["values"]] += pair["counts"]


def no_progress(read_bytes: int) -> None:
    """No progress is shown."""


class Inputs:
    """The captures of one call, the messages that are selected (None for all), and what happened."""

    progress: Meter
    """Complete once ``captures`` was asked for."""

    def __init__(self, outcome: Outcome, wanted: "Query | None", progress: Meter = no_progress) -> None:
        self.outcome, self.wanted, self.progress = outcome, wanted, progress

    @property
    def name(self) -> str:
        """The inputs, as they were given."""
        raise NotImplementedError

    @property
    def names(self) -> "Sequence[str]":
        """The paths in the inputs."""
        raise NotImplementedError

    def metered(self, captures: "Sequence[Capture]") -> Meter:
        """Progress of captures that are about to be read."""
        return self.progress

    def say(self, line: str) -> None:
        """Take a line on what was done, which the value of a call has."""

    @cached_property
    def captures(self) -> "Sequence[Capture]":
        """The captures, found when they are first needed: words are checked before."""
        return self.find()

    def find(self) -> "Sequence[Capture]":
        """The captures in the inputs."""
        raise NotImplementedError

    def check(self, has_result: bool) -> None:
        """Raises an error if an input could not be read; has_result: False where there is nothing without it."""
        raise NotImplementedError

    def finish(self, *report_notes: str) -> None:
        """All was read: the notes are complete."""
        self.outcome.notes[:0] = report_notes


def find_captures(inputs: Sequence[str], outcome: Outcome) -> "list[Capture]":
    """The captures in the inputs, about to be read; what is none is the outcome's."""
    from mqpcap.continued_files import captures

    result = captures(inputs, outcome.choices.is_one)
    outcome.unreadable += result.unreadable
    outcome.skipped += result.skipped
    outcome.capture_count += len(result.captures)
    outcome.file_count += sum(len(capture.files) for capture in result.captures)
    return result.captures


def limit_notes(name: str, counts: Mapping[str, int]) -> list[str]:
    """Notes on a capture: limits that were reached, and packets that were not read."""
    from mqpcap.tcp.wrappings import unread_text

    notes = [
        in_number(words, count).format(f"{count / 1e6:.3f}" if key.endswith("_ns") else count)
        for key, words in _LIMIT_NOTES.items()
        if (count := counts.get(key, 0))
    ]
    return [f"{name}: {note}" for note in (*notes, unread_text(counts)) if note]


def wired(
    capture: "Capture",
    options: "Options",
    take: "Callable[[Output, int], None]",
    hooks: "StageHooks | None" = None,
    worker: "Background | None" = None,
) -> "CapturePipeline":
    """A pipeline that gives the rows of a capture to ``take``, with the time of its first packet (0: not yet known)."""
    from mqpcap.pipeline import CapturePipeline

    def emit(output: "Output") -> None:
        take(output, pipeline.first_ns or 0)

    pipeline = CapturePipeline(capture, options, emit, worker, hooks)
    return pipeline


def steps(pipeline: "CapturePipeline", outcome: Outcome, meter: Meter | None = None) -> Generator[None]:
    """Reads a capture window by window; what the user has to know of it is the outcome's."""
    name, failure = pipeline.capture.files[0], None
    try:
        yield from pipeline.steps(meter)
        failure = pipeline.failure
        outcome.notes += [*pipeline.capture.doubts, *map(str, pipeline.capture.notes)]
        outcome.notes += limit_notes(name, pipeline.stages.counts)
        outcome.notes += pipeline.stages.server_notes()
    except CaptureError as error:
        failure = error
    if failure is not None:
        outcome.unreadable.append((name, error_line(failure)))


@contextmanager
def blamed_on(files: Sequence[str]) -> Iterator[None]:
    """Turns an error into a FailedCaptureError with these files, unless the tables cannot be written."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutputError) and not isinstance(error, RowError):
            raise
        is_fault = not isinstance(error, MqpcapError | OSError) and not is_out_of_memory(error)
        reason = f"a fault of mqpcap, {type(error).__name__}: " * is_fault + error_line(error)
        raise FailedCaptureError(tuple(files), reason) from error


def read(pipeline: "CapturePipeline", outcome: Outcome, meter: Meter) -> bool:
    """The same to its end; whether anything could be read."""
    return sum(1 for _ in steps(pipeline, outcome, meter)) > 0


@contextmanager
def background(choices: Choices, total: int | None) -> "Iterator[Background]":
    """A thread that makes rows while the next window is read, where more than one core may be used and it is worth it.

    total: bytes of the captures, None where a pipe does not tell.
    """
    from mqpcap.background import Background

    if choices.core_count == 1 or (total is not None and total < SMALL_BYTES):
        yield Background()
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "mqpcap-finish") as pool:
        yield Background(pool)


def first_packet_ns(captures: "Sequence[Capture]") -> int | None:
    """The time of the first packet of captures in files; None where that is not known without reading a pipe."""
    for capture in captures:
        if os.path.isfile(capture.files[0]):
            with suppress(CaptureError, OSError):
                for window in capture.windows():
                    return int(window.ts_ns[0])
    return None


def with_end(query: "Query", captures: "Sequence[Capture]") -> "Query":
    """The filter with times that count from the last packet of captures. Raises QueryError if these are no files."""
    if not query.needs_end:
        return query
    names = [name for capture in captures for name in capture.files]
    if not names or not all(map(os.path.isfile, names)):
        raise QueryError("a time before the end, as -5m, needs a file: the end of this input is not known yet")
    last_ns = 0
    for capture in captures:
        with suppress(CaptureError, OSError):  # the command reads it again, and reports what is wrong
            last_ns = max([last_ns, *(int(window.ts_ns.max()) for window in capture.windows())])
    return query.ending(last_ns)


def size_bytes(captures: "Sequence[Capture]") -> int:
    """Bytes of all files of the captures, as far as they have a size."""
    total = 0
    for capture in captures:
        for name in capture.files:
            with suppress(OSError):
                total += os.stat(name).st_size
    return total
