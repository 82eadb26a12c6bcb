"""Words for people that several packages write: counts, sizes, times and addresses, and text safe to show.

Names and texts from captures pass `shown` before a terminal sees them.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache

from mqpcap.errors import MisuseError, QueryError, one_line


def shown(text: str) -> str:
    """The text with every character escaped that a terminal would obey instead of show.

    >>> shown("a\\tb\\x1b[31m"), shown("\\udcff.pcap")
    ('a\\\\tb\\\\x1b[31m', '\\\\xff.pcap')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte of a file's name that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode()


_OF_ONE_OR_SEVERAL = re.compile(r"\[([^]|]*)\|([^]|]*)\]")
_NO_MEMORY = ("failed to map segment", "annot allocate memory", "can't start new thread")
"""Messages of the dynamic linker, the system and CPython's threads if no memory is left."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error or its cause is a lack of memory, for example for a shared library or a thread."""
    while error is not None and not isinstance(error, MemoryError):
        if isinstance(error, ImportError | RuntimeError | OSError) and any(x in str(error) for x in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return error is not None


def error_line(error: BaseException) -> str:
    """What went wrong, on one line."""
    if is_out_of_memory(error):
        return "out of memory; --max-memory and --jobs bound what is held"
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    return one_line(error) or type(error).__name__


def extra_line(name: str) -> str:
    """The line that installs an extra: the package has one source, and no index has it.

    >>> extra_line("lake")
    "pip install '.[lake]' in the source of mqpcap"
    """
    return f"pip install '.[{name}]' in the source of mqpcap"


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> cell_width("topic"), cell_width("東京")
    (5, 4)
    """
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(2 if east_asian_width(c) in "WF" else category(c) not in ("Mn", "Me", "Cf") for c in text)


def cut(text: str, width: int, keeps_end: bool = False) -> str:
    """The part of a text that fits a width: its beginning, or its end."""
    if text.isascii():
        return text[max(len(text) - width, 0) :] if keeps_end else text[: max(width, 0)]
    while text and cell_width(text) > width:
        text = text[1:] if keeps_end else text[:-1]
    return text


@contextmanager
def misuse_of(option: str = "", column: str = "") -> Iterator[None]:
    """A QueryError inside, which may name a column first, is misuse of an option; without it the error names it."""
    try:
        yield
    except QueryError as error:
        words = one_line(error)
        raise MisuseError(f"{option}: {words.removeprefix(f'{column}: ')}" if option else words) from None


def in_number(words: str, count: int) -> str:
    """A sentence on one or several: of ``[one|several]`` the words that agree with the count.

    >>> in_number("{} [reply has|replies have] no request", 1)
    '{} reply has no request'
    """
    return _OF_ONE_OR_SEVERAL.sub(r"\1" if count == 1 else r"\2", words)


def plural(count: int, word: str, words: str | None = None) -> str:
    """A count with its noun, thousands set apart.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def counted(counts: Iterable[tuple[str, int]]) -> str:
    """How many there are of each.

    >>> counted({"fq": 1200, "kokaq": 1}.items()), counted([])
    ('1,200 fq, 1 kokaq', 'none')
    """
    return ", ".join(f"{count:,} {name}" for name, count in counts) or "none"


def size(size_bytes: int) -> str:
    """A number of bytes for people.

    >>> size(999), size(12_345_678)
    ('999 B', '12.3 MB')
    """
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def endpoint(ip: object, port: object) -> str:
    """``address:port``, IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"


def clock(ts_ns: int, utc: bool, dated: bool) -> str:
    """A time of day with microseconds and its zone, the date in front if asked.

    >>> clock(1_700_000_000_000_001_000, True, True)
    '2023-11-14 22:13:20.000001Z'
    """
    seconds, ns = divmod(ts_ns, 1_000_000_000)
    second, zone = clock_second(seconds, utc, dated)
    return f"{second}.{ns // 1000:06d}{zone}"


@lru_cache
def clock_second(seconds: int, utc: bool, dated: bool) -> tuple[str, str]:
    """A second as text, and the zone: Z if UTC was asked for, else the local time's lead, as +01 or -03:30."""
    when = datetime.fromtimestamp(seconds, UTC)
    when = when if utc else when.astimezone()
    return f"{when:{'%Y-%m-%d ' if dated else ''}%H:%M:%S}", "Z" if utc else when.isoformat()[-6:].removesuffix(":00")
