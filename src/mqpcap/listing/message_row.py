"""A message as Python has it: its columns, its fields, and the exchange that it belongs to.

Made by: ``reorder_buffer``. Read by: everything that writes messages, and users of ``mqpcap.show``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mqpcap.listing.extra_columns import BYTES
from mqpcap.tables.json_lines import Json, json_object


class Exchange(NamedTuple):
    """The exchange of a message.

    ``packet``, ``offset``, ``file``: of the partner, the other message; the file only if it is another file.
    ``status``, ``error_code``: of the reply.
    """

    is_request: bool
    state: str
    latency_ns: int | None
    server_ns: int | None
    packet: int | None
    status: str | None
    error_code: int | None
    offset: int | None
    file: str | None
    how: str | None = None


def exchange_object(exchange: Exchange) -> dict[str, Json]:
    """An exchange as JSON: state, times, packet of the partner, and its file if it is another file."""
    partner = "reply" if exchange.is_request else "request"
    locations = {f"{partner}_packet": exchange.packet, f"{partner}_file": exchange.file}
    times = {"latency_ns": exchange.latency_ns, "server_ns": exchange.server_ns}
    return json_object({"state": exchange.state, **times, **locations})


class MessageRow(NamedTuple):
    """One message: its columns of ``messages``, those of its protocol's table, its exchange if known, and its bytes."""

    capture: int
    protocol: str
    message: Mapping[str, object]
    fields: Mapping[str, object]
    exchange: Exchange | None = None
    first_ns: int = 0
    """The time of the first packet of its capture."""

    def __getitem__(self, name: Any) -> Any:
        """The value of a column, or of a field as ``route`` or ``fq.route``; with a number as of any tuple."""
        if not isinstance(name, str):
            return tuple.__getitem__(self, name)
        field_name = name.removeprefix(f"{self.protocol}.")
        return self.message[name] if name in self.message else self.fields[field_name]

    def __getattr__(self, name: str) -> Any:
        """The value of a column or a field: ``row.op``."""
        if name.startswith("_") or (name not in self.message and name not in self.fields):
            raise AttributeError(f"a {self.protocol} message has no {name!r}; mqpcap.fields() lists the names")
        return self[name]

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key among the rows of all captures."""
        return self.message["ts_ns"], self.capture, self.message["first_packet"]  # type: ignore[return-value]  # of MESSAGES

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.message[BYTES]  # type: ignore[return-value]  # a column of bytes
