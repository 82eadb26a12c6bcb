"""Options of a dissection: what is read, and which tables are made.

In: the words of a command or a call. Out: `Options`, the same for all stages. Called by: all that read captures.
"""

from collections.abc import Callable
from dataclasses import field

from mqpcap.decode.detection import DecodeAs, ProvenServer
from mqpcap.records import dataclass
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.output import Carried, CarriedByDeliveries
from mqpcap.tcp.exclusion import ConnectionTest
from mqpcap.tcp.reassembly import MAX_BYTES
from mqpcap.tls import KeyLog

OPTIONAL_TABLES = frozenset({"exchanges", "deliveries", "captures"})
"""Tables that cost no work if they are not selected."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a dissection."""

    decode_as: tuple[DecodeAs, ...] = ()
    policy: RowPolicy = field(default_factory=RowPolicy)
    max_memory_bytes: int = MAX_BYTES
    keys: KeyLog | None = None
    """The secrets of TLS sessions."""
    servers: frozenset[ProvenServer] = frozenset()
    """Servers proved by other parts of the same capture."""
    connections: ConnectionTest | None = None
    """Selects the connections that have rows, None for all. Other connections are read only as context."""
    until: Callable[[int], int | None] | None = None
    """Maps the time of the first packet to the end of the selected time range. Reading ends when all messages that
    began in it are complete; replies to them may be unread."""
    optional_tables: frozenset[str] = OPTIONAL_TABLES
    """The tables of OPTIONAL_TABLES to make."""
    protocols: frozenset[str] | None = None
    """The protocols whose messages are decoded, None for all."""
    carried: frozenset[Carried] = frozenset()
    """Columns of messages that rows of ``exchanges`` have of both of their messages: see `output.end_rows`."""
    carried_by_deliveries: frozenset[CarriedByDeliveries] = frozenset()
    """Columns of messages that rows of ``deliveries`` have."""

    @property
    def carried_by_pairs(self) -> frozenset[Carried]:
        """Columns of messages that rows of either table have."""
        return self.carried.union((table, name) for _, table, name in self.carried_by_deliveries)

    @property
    def row_policy(self) -> RowPolicy:
        """The policy of rows, with the columns that other tables are made from."""
        policy = self.policy.with_pairing_columns() if self.pairs_requests else self.policy
        return policy.with_columns(("capture_file",)) if "captures" in self.optional_tables else policy

    @property
    def pairs_requests(self) -> bool:
        """Whether replies are paired with requests."""
        return not self.optional_tables.isdisjoint(("exchanges", "deliveries"))
