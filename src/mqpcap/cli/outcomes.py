"""What became of each request, beside the rows of ``messages`` that ``show`` prints.

``exchanges`` knows only when a capture is read to its end, so its chunks are taken twice: once to learn the places of
all messages, once to give each its column. The columns never leave ``show``: JSON has those of the tables.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import compact, dictionary, group_ids, unified
from mqpcap.correlate.exchanges import EXCHANGES
from mqpcap.tables.arrow import Chunk

if TYPE_CHECKING:
    from mqpcap.pipeline import Dissection

STATE, LATENCY_NS, PARTNER, PARTNER_FILE, STATUS, ERROR_CODE = COLUMNS = (
    "answer.state", "answer.latency_ns", "answer.partner", "answer.partner_file", "answer.status", "answer.error_code",
)  # fmt: skip
"""Of a request: state, latency, and status and error of its reply. Of both: the packet of the other one, and its file
where that is not the row's own. Of a reply without a request: the state. Null on all other rows."""
_PLACE = ("connection_id", "stream_offset", "first_packet")
_READ = ("connection_id", "request_offset", "reply_offset", "latency_ns", "state", "status", "error_code")
"""Of ``exchanges``."""
_NO_EXCHANGES = compact(EXCHANGES, ("state", "status")).empty_table().select(_READ)


class Answers:
    """The chunks of a dissection with COLUMNS behind those of ``messages``; they must come in their own order."""

    def __init__(self, dissection: "Dissection") -> None:
        places: dict[str, list[pa.Table]] = {}
        for chunk in dissection.chunks():
            places.setdefault(chunk.protocol, []).append(_places(chunk))
        ledgers = dissection.ledgers()
        self._columns: Mapping[str, pa.Table] = {
            name: _answers(_one(parts), _one([_NO_EXCHANGES, *(x.select(_READ) for x in ledgers[name].blocks())]))
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


def _one(tables: Sequence[pa.Table]) -> pa.Table:
    return unified(pa.concat_tables(tables)).combine_chunks()


def _places(chunk: Chunk) -> pa.Table:
    """Where the messages are: copies, for a column of a chunk keeps alive all that came from the spool with it."""
    numbers = {name: pa.array(chunk.messages[name].to_numpy().copy()) for name in _PLACE}
    files = dictionary(chunk.messages["capture_file"])
    return pa.table(
        numbers
        | {
            "server": pc.equal(chunk.messages["direction"], "s2c"),
            "capture_file": pa.DictionaryArray.from_arrays(
                pa.array(files.indices.to_numpy().copy()), pa.array(files.dictionary.to_pylist(), pa.string())
            ),
        }
    )


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
    connection = pa.concat_arrays([table["connection_id"].combine_chunks() for table in (places, exchanges)])
    code = connection.dictionary_encode().indices.to_numpy().astype(np.int64)
    its_code, server = code[n:], places["server"].to_numpy()
    asked, answered = (exchanges[name].combine_chunks() for name in ("request_offset", "reply_offset"))
    answers = np.flatnonzero(answered.is_valid().to_numpy(zero_copy_only=False))
    side = np.concatenate([2 * code[:n] + server, 2 * its_code, 2 * its_code[answers] + 1])
    offset = pa.concat_arrays([places["stream_offset"].combine_chunks(), asked, answered.take(pa.array(answers))])
    key = _keys(side, pc.fill_null(offset, -1).to_numpy())
    found = pc.index_in(pa.array(key[n:]), value_set=pa.array(key[:n]))
    row = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    reply = np.full(m, -1, np.int64)
    reply[answers] = row[m:]
    return row[:m], reply


def _keys(side: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number per place in a direction of a connection: equal where both are."""
    spread = int(offset.max(initial=0)) + 2
    if (int(side.max(initial=0)) + 1) * spread < 1 << 63:
        return side * spread + offset + 1
    return group_ids([pa.array(side), pa.array(offset)], len(side))
