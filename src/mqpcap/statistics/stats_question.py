"""What ``stats`` is asked for: its words, checked, and the report that answers.

In: the words of the command or of the call, as text or as sequences. Out: `StatsReport`. Called by: ``stats``, on the
command line and in Python. Errors name the options of the command.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mqpcap.errors import MisuseError
from mqpcap.query.filter_columns import column
from mqpcap.query.values import duration_ns
from mqpcap.statistics.report_columns import BY
from mqpcap.statistics.reports import StatsReport, metric_names, stats_report
from mqpcap.wording import misuse_of

TALKERS_BY = (("host",), ("port",))
"""Other groups of ``--talkers``."""
MAX_NAMES = 4
"""Names to group by."""
WITH_GROUPS = ("producers", "consumers")
"""Reports that are grouped by names of one's choice."""
OF_CONNECTIONS = ("talkers", "deliveries", "delays")
"""Reports that count whole connections."""
Words = Sequence[str] | str | None
"""Words, or one text with commas."""


def key_names(words: Words) -> tuple[str, ...] | None:
    """Names to group by: those of BY in any case, or names that filters know. Raises MisuseError.

    >>> key_names("OP, topic,op"), key_names(None)
    (('op', 'topic'), None)
    """
    if words is None:
        return None
    names = tuple(dict.fromkeys(name.lower() if name.lower() in BY else name for name in _listed(words)))
    if names in TALKERS_BY:
        return names
    if len(names) > MAX_NAMES:
        raise MisuseError(f"--by: {len(names)} names; the most are {MAX_NAMES}")
    with misuse_of("--by"):
        for name in names:
            if name not in BY:
                column(name)
    return names


def interval_ns(word: str | None) -> int | None:
    """A time as ``1s`` in nanoseconds. Raises MisuseError, also for a time of nothing."""
    if word is None:
        return None
    with misuse_of("--interval"):
        time_ns = duration_ns(word.strip())
    if not time_ns:
        raise MisuseError("--interval: an interval is longer than nothing")
    return time_ns


def checked_top(top: int | None) -> int | None:
    """A number of rows. Raises MisuseError for one below 1."""
    if top is not None and top < 1:
        raise MisuseError(f"--top is a number from 1 on, not {top}")
    return top


def _listed(words: Sequence[str] | str) -> list[str]:
    return [word.strip() for word in (words.split(",") if isinstance(words, str) else words)]


@dataclass(frozen=True, slots=True)
class StatsQuestion:
    """A report by its name, or groups without one."""

    name: str | None
    key_names: tuple[str, ...] | None
    metrics: tuple[str, ...]
    interval_ns: int | None

    @classmethod
    def of_words(
        cls, name: str | None, keys: Words, metric: Words, interval: str | None, is_filtered: bool
    ) -> "StatsQuestion":
        """The question in words. Raises MisuseError if they exclude each other, or a word is unknown."""
        with misuse_of("--metric"):
            metrics = metric_names(_listed(metric or ()))
        question = cls(name, key_names(keys), metrics, interval_ns(interval))
        question._check(is_filtered)
        return question

    def _check(self, is_filtered: bool) -> None:
        name = {"delivery_list": "deliveries"}.get(self.name or "", self.name)
        if name is not None and (self.metrics or self.interval_ns is not None):
            raise MisuseError(f"--{name} has columns of its own; it goes with neither --metric nor --interval")
        if self.key_names in TALKERS_BY and name != "talkers":
            raise MisuseError(f"--by {self.key_names[0]} goes with --talkers")
        if name not in (None, *WITH_GROUPS) and self.key_names and self.key_names not in TALKERS_BY:
            raise MisuseError(f"--{name} has groups of its own; it does not go with --by")
        if is_filtered and name in OF_CONNECTIONS:
            raise MisuseError(f"--{name} counts whole connections; it goes with no filter")

    def report(self, max_rows: int) -> StatsReport:
        """The report that answers; ``max_rows`` of the slowest requests."""
        return stats_report(self.name, self.key_names, self.metrics, self.interval_ns, max_rows)
