"""What became of each request, beside the rows of ``messages`` that ``show`` prints.

``exchanges`` knows only when a capture is read to its end, so its chunks are taken twice: once to learn the places of
all messages, once to give each its column. The columns never leave ``show``: JSON has those of the tables.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.matching import codes
from mqpcap.tables import Chunk

if TYPE_CHECKING:
    from mqpcap.dissection import Dissection

STATE, LATENCY_NS, PARTNER, PARTNER_FILE, STATUS, ERROR_CODE = COLUMNS = (
    "answer.state", "answer.latency_ns", "answer.partner", "answer.partner_file", "answer.status", "answer.error_code",
)  # fmt: skip
"""Of a request: state, latency, and status and error of its reply. Of both: the packet of the other one, and its file
where that is not the row's own. Of a reply without a request: the state. Null on all other rows."""
_PLACE = ("connection_id", "direction", "stream_offset", "first_packet", "capture_file")


class Answers:
    """The chunks of a dissection with COLUMNS behind those of ``messages``; they must come in their own order."""

    def __init__(self, dissection: "Dissection") -> None:
        places: dict[str, list[pa.Table]] = {}
        for chunk in dissection.chunks():
            places.setdefault(chunk.protocol, []).append(_places(chunk))
        ledgers = dissection.ledgers()
        self._columns: Mapping[str, pa.Table] = {
            name: _answers(pa.concat_tables(parts).unify_dictionaries().combine_chunks(), ledgers[name].exchanges)
            for name, parts in places.items()
            if name in ledgers
        }
        self._taken: dict[str, int] = {}

    def __call__(self, chunk: Chunk) -> Chunk:
        """The next chunk of its protocol with what became of its requests."""
        if chunk.protocol not in self._columns:
            return chunk
        start = self._taken.get(chunk.protocol, 0)
        self._taken[chunk.protocol] = start + chunk.messages.num_rows
        said = self._columns[chunk.protocol].slice(start, chunk.messages.num_rows)
        messages = chunk.messages
        for name in COLUMNS:
            messages = messages.append_column(name, said[name])
        return Chunk(chunk.protocol, messages, chunk.fields)


def _places(chunk: Chunk) -> pa.Table:
    places = chunk.messages.select(_PLACE)
    return places.set_column(4, "capture_file", places["capture_file"].dictionary_encode())


def _answers(places: pa.Table, exchanges: pa.Table) -> pa.Table:
    """COLUMNS for the messages at ``places``, in their order."""
    n = places.num_rows
    request, reply = _rows(places, exchanges)
    known = np.flatnonzero((request >= 0) | (reply >= 0))
    asked, both = known[request[known] >= 0], np.flatnonzero((request >= 0) & (reply >= 0))
    of_request = np.full(n, -1, np.int64)
    of_request[request[asked]] = asked
    of_row = np.full(n, -1, np.int64)
    of_row[np.where(request[known] >= 0, request[known], reply[known])] = known
    partner = np.full(n, -1, np.int64)
    partner[request[both]], partner[reply[both]] = reply[both], request[both]

    def taken(name: str, at: NDArray[np.int64]) -> pa.Array:
        return exchanges[name].combine_chunks().take(pa.array(at, mask=at < 0))

    files = places["capture_file"].combine_chunks()
    there = pa.array(partner, mask=partner < 0)
    file_codes = files.indices.to_numpy()
    elsewhere = (partner >= 0) & (file_codes != file_codes[partner])
    return pa.table(
        {
            STATE: taken("state", of_row),
            LATENCY_NS: taken("latency_ns", of_request),
            PARTNER: places["first_packet"].combine_chunks().take(there),
            PARTNER_FILE: files.dictionary.take(pa.array(file_codes[partner], mask=~elsewhere)),
            STATUS: taken("status", of_request),
            ERROR_CODE: taken("error_code", of_request),
        }
    )


def _rows(places: pa.Table, exchanges: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of ``places`` that are the request and the reply of each exchange, -1 for none."""
    n, m = places.num_rows, exchanges.num_rows
    connection = places["connection_id"].combine_chunks()
    its_connection, asked, answered = (
        exchanges[name].combine_chunks() for name in ("connection_id", "request_offset", "reply_offset")
    )
    offset, direction = (places[name].combine_chunks() for name in ("stream_offset", "direction"))
    keys = [
        pa.concat_arrays([connection, its_connection, its_connection]),
        pa.concat_arrays([offset, asked, answered]),
        pa.concat_arrays([pc.equal(direction, "s2c"), pa.array(np.arange(2 * m) >= m)]),
    ]
    key = codes(keys, n + 2 * m)
    row_of = np.full(int(key.max(initial=0)) + 1, -1, np.int64)
    row_of[key[:n]] = np.arange(n)
    return row_of[key[n : n + m]], row_of[key[n + m :]]
