"""Rows of the tables written down by hand: what a row does not say is that of an ordinary one."""

from collections.abc import Mapping

import pyarrow as pa

from mqpcap.tables.schemas import TABLES

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
ORDINARY: dict[str, object] = {
    "capture": "a.pcap", "capture_file": "a.pcap", "connection_id": 1, "direction": "c2s", "stream_offset": 0,
    "frame_len": 10, "ts": 0, "ts_ns": 0, "end_ts_ns": 0, "first_packet": 1, "last_packet": 1, "src_ip": CLIENT,
    "dst_ip": SERVER, "src_port": 40000, "dst_port": 5555, "protocol": "flymq", "gap_before_bytes": 0,
    "resynced": False, "request_direction": "c2s", "state": "answered", "client_ip": CLIENT, "client_port": 40000,
    "server_ip": SERVER, "server_port": 5555, "how": "offset",
}  # fmt: skip
_REPLY: dict[str, object] = {
    "src_ip": SERVER, "src_port": 5555, "dst_ip": CLIENT, "dst_port": 40000
}  # fmt: skip


def rows_of(table: str, *rows: Mapping[str, object]) -> pa.Table:
    """Rows of ``messages``, ``exchanges`` or another table; a message from the server comes from its end.

    Exchanges carry what a row says of ``END.messages.COLUMN``.
    """
    made = [ORDINARY | (_REPLY if row.get("direction") == "s2c" else {}) | dict(row) for row in rows]
    fields = [*TABLES[table]]
    for name in dict.fromkeys(name for row in rows for name in row if ".messages." in name):
        column = name.rpartition(".")[2]
        own = TABLES["messages"]
        fields.append(pa.field(name, own.field(column).type if column in own.names else pa.int64()))
    return pa.table({x.name: pa.array([row.get(x.name) for row in made], x.type) for x in fields}, pa.schema(fields))
