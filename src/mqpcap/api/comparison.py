"""``mqpcap.diff``: two captures compared."""

from collections.abc import Callable
from typing import Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.query import Query
from mqpcap.reading import FilterOptions, background, no_progress, size_bytes
from mqpcap.statistics.changes import Comparison, compared, count_side, new_side


def diff(
    before: Source,
    after: Source,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = no_progress,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> Comparison:
    """Operations, errors, latencies, topics and clients of two captures, compared.

    filter: the messages to compare; all of them judge how far a side can be trusted.
    ``result.parts["operations"]`` has a `Change` for each operation; ``result.as_json()`` is the object of ``--json``.

    >>> import mqpcap
    >>> [change.words for change in mqpcap.diff("pcaps/fq/session.pcap", "pcaps/fq/session.pcap").parts["topics"]][0]
    ()
    """
    inputs = [selected(path, filter, options, progress, notes) for path in (before, after)]
    sides = []
    for letter, each in zip("AB", inputs, strict=True):
        side = new_side(letter, each.name, each.captures)
        with background(each.outcome.choices, size_bytes(each.captures)) as worker:
            count_side(side, each.outcome, each.progress, worker, each.wanted)
        sides.append(side)
    for each in inputs:
        each.check(
            not each.outcome.unreadable or all(side.total.messages for side in sides)
        )  # half of a comparison would say that all is gone
    comparison = compared(sides)
    inputs[0].finish()
    inputs[1].finish(*comparison.notes())
    return comparison
