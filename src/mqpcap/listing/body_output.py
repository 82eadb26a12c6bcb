"""Bodies of messages as they are: as files, or as records in a shape that never changes.

In: rows of messages, as ``mqpcap.show`` gives them. Out: files, or a mapping for each body. Called by: ``show``.
"""

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from mqpcap.errors import OutputError
from mqpcap.listing.field_values import FieldReader, message_bodies
from mqpcap.listing.message_row import MessageRow
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.wording import plural

Encoding = Literal["text", "base64"]
MAX_FILES = 1 << 20
"""Files that are written to one directory; then OutputError is raised."""


class BodyFiles:
    """Writes each body to a file of its own in a directory that is new or empty."""

    def __init__(self, folder: str) -> None:
        self.count = 0
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(folder) or os.listdir(folder):
            raise OutputError(f"{folder} is not empty; bodies go to a directory that is new or empty")

    def write(self, rows: Iterable[MessageRow]) -> None:
        """Write the bodies of messages; names have number, connection and packet: ``000001_c2_41.bin``."""
        for row in rows:
            for body in message_bodies(row):
                self.count += 1
                if self.count > MAX_FILES:
                    raise OutputError(f"more than {plural(MAX_FILES, 'body', 'bodies')}; choose fewer with a filter")
                name = f"{self.count:06d}_c{row.message[CONNECTION_NUMBER]}_{row.message['first_packet']}.bin"
                with open(os.path.join(self._folder, name), "xb") as file:
                    file.write(body)


def body_records(row: MessageRow, encoding: Encoding) -> Iterator[Mapping[str, object]]:
    """A record for each body of a message, one without a body if it has none; every record has every key."""
    message = row.message
    connection, client, server, ts = FieldReader(("connection", "client", "server", "ts")).values(row)
    texts = [_encoded(body, encoding) for body in message_bodies(row)]
    for number, body in enumerate(texts or [None]):
        yield {
            "ts": ts, "file": message["capture_file"], "packet": message["first_packet"], "connection": connection,
            "connection_id": str(message["connection_id"]), "client": client, "server": server,
            "protocol": row.protocol, "direction": message["direction"], "op": message["op"],
            "topic": message["destination"], "group": message["group_name"], "message_id": message["message_id"],
            "correlation_id": message["correlation_id"], "partition": message["partition_id"],
            "record": number if texts else None, "body": body,
        }  # fmt: skip


def _encoded(body: bytes, encoding: Encoding) -> str:
    return body.decode("utf-8", "replace") if encoding == "text" else base64.b64encode(body).decode()
