"""Messages of captures as commands have them, in this process."""

from pathlib import Path

from mqpcap.capture import Capture, captures
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.listing.time_merge import merge
from mqpcap.query import EVERYTHING, Query
from mqpcap.reading import Choices, Outcome

PCAPS = Path(__file__).parents[2] / "pcaps"


def capture_of(name: Path | str) -> Capture:
    """The one capture at a path, or of a sample by its name as ``fq/session``."""
    path = name if isinstance(name, Path) else PCAPS / f"{name}.pcap"
    (capture,) = captures([str(path)]).captures
    return capture


def merged(*names: Path | str, wanted: Query = EVERYTHING, with_bytes: bool = False) -> list[MessageRow]:
    """The rows of captures in the order in which commands write them."""
    rows: list[MessageRow] = []
    outcome = Outcome(Choices())
    merge(
        [capture_of(name) for name in names],
        ShownMessages(wanted),
        outcome,
        rows.extend,
        lambda count: None,
        with_bytes,
    )
    assert not outcome.unreadable
    return rows
