"""Times of lines as Wireshark's ``-t`` writes them: time of day, with the date, relative, since the line before.

In: times of messages, line after line. Out: text. Called by: ``show`` and ``follow``, through the style of their lines.
"""

from collections.abc import Callable
from typing import Literal

from mqpcap.wording import clock

TimeForm = Literal["a", "ad", "r", "d", "e", "u", "ud"]


def is_utc(form: TimeForm, utc: bool) -> bool:
    """Whether times are in UTC."""
    return utc or form.startswith("u")


def line_times(form: TimeForm, utc: bool, first_ns: int | None) -> Callable[[int], str] | None:
    """Writes the time of each line in turn; None for times of day, whose date is written where it changes.

    first_ns: the time of the first packet, None if that is the first line's.
    """
    if form in ("ad", "ud"):
        return lambda ts_ns: clock(ts_ns, is_utc(form, utc), True)
    if form == "e":
        return lambda ts_ns: seconds(ts_ns)
    return _Since(form == "d", first_ns) if form in ("r", "d") else None


class _Since:
    """Seconds since the first packet, or since the line before."""

    def __init__(self, by_line: bool, first_ns: int | None) -> None:
        self._by_line, self._from_ns = by_line, None if by_line else first_ns

    def __call__(self, ts_ns: int) -> str:
        since_ns = ts_ns if self._from_ns is None else self._from_ns
        if self._by_line or self._from_ns is None:
            self._from_ns = ts_ns
        return f"{seconds(ts_ns - since_ns):>12}"


def seconds(time_ns: int, digits: int = 6) -> str:
    """Nanoseconds as seconds with six digits, or up to nine.

    >>> seconds(1_500_000_000), seconds(-1000)
    ('1.500000', '-0.000001')
    """
    sign, rest_ns = "-" if time_ns < 0 else "", abs(time_ns)
    return f"{sign}{rest_ns // 1_000_000_000}.{f'{rest_ns % 1_000_000_000:09d}'[:digits]}"
