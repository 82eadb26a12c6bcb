"""``mqpcap.extract``: the packets of selected messages as a capture of their own."""

import os
from typing import BinaryIO, Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.errors import MisuseError, OutputError
from mqpcap.listing.anonymisation import KEY_BYTES, Anonymisation, key_of_file
from mqpcap.listing.connection_search import read_again
from mqpcap.listing.extraction import NO_BODIES, ExtractSummary, Split, find_packets, write_extract, write_packets
from mqpcap.query import Query
from mqpcap.reading import FilterOptions


def extract(
    path: Source,
    out: str | os.PathLike[str] | BinaryIO,
    filter: str | Query | None = None,
    *,
    connections: bool = False,
    anonymise: Anonymisation | bytes | str | bool | None = None,
    split: Split | None = None,
    **options: Unpack[FilterOptions],
) -> ExtractSummary:
    """Write the packets of selected messages into a new capture file, ``out``, or into a binary file.

    connections: whole connections of selected messages. anonymise: a key of 32 bytes, the path of a file with a key, as
    ``--key-file``, True for a new key, or `Anonymisation`, which says how bodies and names are replaced. Equal keys
    give equal addresses. split: ``"connection"``, ``"topic"`` or a number of bytes; ``out`` is then a new directory
    with a file for each. Raises MqpcapError if nothing is selected.
    """
    key = key_of_file(anonymise) if isinstance(anonymise, str) else anonymise
    key = os.urandom(KEY_BYTES) if key is True else key
    how = Anonymisation(key) if isinstance(key, bytes) else key or None
    if how is not None and len(how.key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(how.key)}")
    if "bodies" in options:
        raise MisuseError(NO_BODIES)
    if split not in (None, "connection", "topic") and (not isinstance(split, int) or split < 1):
        raise MisuseError(f"--split: {split!r} is neither connection nor topic nor a number of bytes")
    target = os.fspath(out) if isinstance(out, str | os.PathLike) else out
    if isinstance(target, str) and os.path.lexists(target):
        raise OutputError(f"{target} exists; extract replaces no file")
    if split is not None and not isinstance(target, str):
        raise MisuseError("--split writes a directory, not stdout")
    inputs = selected(path, filter, options)
    read_again(inputs.captures)
    parts = find_packets(inputs.captures, inputs.wanted, connections, inputs.outcome, inputs.progress)
    inputs.check(parts is not None)
    assert parts is not None
    if isinstance(target, str):
        summary = write_extract(parts, target, split, inputs.outcome, inputs.progress, how)
    else:
        summary = write_packets(parts, target, inputs.outcome, inputs.progress, how)
    if how is not None:
        inputs.outcome.notes.append(how.words())
    inputs.finish()
    return summary
