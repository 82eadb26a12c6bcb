"""Captures of TLS with their key logs, and the plaintext streams that a reader gets of them."""

import hashlib
import io
import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqpcap.capture import captures
from mqpcap.capture.pcapng import PacketFile
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.pipeline import CapturePipeline
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tls import KeyLog

CAPTURES = Path(__file__).resolve().parent.parent / "tls" / "captures"

Streams = dict[tuple[int, int], dict[int, bytes]]
"""By connection and side: the bytes from a stream offset on."""


def truth(name: str) -> dict[str, Any]:
    """What the clients of a capture logged."""
    content: dict[str, Any] = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return content


def keys_of(name: str) -> KeyLog:
    """The key log of a capture."""
    return KeyLog(str(CAPTURES / f"{name}.keylog"))


def capture_with_secrets(name: str, path: Path, before_packet: int = 0, packet_count: int | None = None) -> Path:
    """First packets of a capture as pcapng, its key log inside as ``editcap --inject-secrets`` puts it in front."""
    data, count = io.BytesIO(), 0
    file = PacketFile(data, "test")
    (capture,) = captures([str(CAPTURES / f"{name}.pcap")]).captures
    for window in capture.windows():
        for i, start in enumerate(window.offset.tolist()[:packet_count]):
            if count == before_packet:
                file.write_secrets((CAPTURES / f"{name}.keylog").read_bytes())
            packet = window.buffer[start : start + int(window.caplen[i])].tobytes()
            file.write(int(window.link_type[i]), int(window.ts_ns[i]), packet, int(window.wirelen[i]))
            count += 1
    path.write_bytes(data.getvalue())
    os.utime(path, (1_000_000_000, 1_000_000_000))  # a lake leaves new files for later
    return path


def opened(path: Path, keys: KeyLog | None, options: Options | None = None) -> tuple[Streams, dict[str, list[Any]]]:
    """The streams that the reader gets, and the rows by table."""
    streams: Streams = defaultdict(dict)
    rows: dict[str, list[Any]] = defaultdict(list)

    def note(chunks: StreamChunks) -> None:
        for i in range(len(chunks)):
            start, length = int(chunks.start[i]), int(chunks.length[i])
            side = streams[int(chunks.flow[i]), int(chunks.side[i])]
            # A reader gets bytes again that it did not consume.
            data = chunks.buffer[start : start + length].tobytes()
            side[int(chunks.offset[i])] = max(data, side.get(int(chunks.offset[i]), b""), key=len)

    (capture,) = captures([str(path)]).captures
    settings = replace(options or Options(), keys=keys)
    pipeline = CapturePipeline(
        capture,
        settings,
        lambda output: rows[output.table].extend(output.rows.to_pylist()),
        None,
        StageHooks(chunks=note),
    )
    pipeline.run()
    rows["notes"] = [pipeline.stages.counts]
    return streams, rows


def stream(parts: dict[int, bytes]) -> bytes:
    """The bytes of a side without gaps."""
    data = b""
    for offset, part in sorted(parts.items()):
        assert offset <= len(data), f"bytes are missing before {offset}"
        data = data[:offset] + part
    return data


def hashes(streams: Streams) -> set[str]:
    """The SHA-256 of each stream."""
    return {hashlib.sha256(stream(parts)).hexdigest() for parts in streams.values()}
