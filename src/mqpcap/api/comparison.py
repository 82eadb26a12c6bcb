"""``mqpcap.diff``: two captures compared."""

from typing import Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.query import Query
from mqpcap.reading import FilterOptions, Outcome, background, size_bytes
from mqpcap.statistics.changes import Comparison, compared, count_side, new_side


def diff(
    before: Source, after: Source, filter: str | Query | None = None, **options: Unpack[FilterOptions]
) -> Comparison:
    """Operations, errors, latencies, topics and clients of two captures, compared.

    filter: the messages to compare; all of them judge how far a side can be trusted.
    ``result.parts["operations"]`` has a `Change` for each operation; ``result.as_json()`` is the object of ``--json``.

    >>> import mqpcap
    >>> [change.words for change in mqpcap.diff("pcaps/fq/session.pcap", "pcaps/fq/session.pcap").parts["topics"]][0]
    ()
    """
    inputs = [selected(path, filter, options) for path in (before, after)]
    sides, outcome = [], inputs[0].outcome
    for letter, each in zip("AB", inputs, strict=True):
        side = new_side(letter, each.name, each.captures)
        part = Outcome(outcome.choices)
        with background(part.choices, size_bytes(each.captures)) as worker:
            count_side(side, part, each.progress, worker, each.wanted)
        outcome.add(part)
        sides.append(side)
    # Half of a comparison would say that all is gone.
    inputs[0].check(not outcome.unreadable or all(side.total.messages for side in sides))
    comparison = compared(sides)
    inputs[0].finish(*comparison.notes())
    return comparison
