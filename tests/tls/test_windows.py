"""Rows of opened TLS do not depend on how the input is read."""

import pickle
import random
from itertools import product
from pathlib import Path

import pytest
from dissection import Dissection, dissect
from examples import one_in
from opened_tls import CAPTURES, keys_of, opened
from rows import records
from torture import read

from mqpcap.capture import captures, windows
from mqpcap.options import Options
from mqpcap.pipeline import Pipeline

NAMES = ("flymq_go_t13", "mqtt_t12_resumed", "t10_cbc_sha1", "t12_small_records", "t13_key_update", "t13_split_send")


def tables(found: Dissection) -> dict[str, list[str]]:
    names = ("messages", "connections", "problems", "exchanges")
    return {name: sorted(map(str, found.table(name).to_pylist())) for name in names}


def rows_of(path: Path, name: str) -> dict[str, list[str]]:
    (capture,) = captures([str(path)]).captures
    return tables(dissect(capture, Options(keys=keys_of(name))))


def damaged(name: str, way: str, folder: Path) -> Path:
    """A copy of a capture that lacks packets, by chance, or its first ones."""
    (head, packets), chance = records(CAPTURES / f"{name}.pcap"), random.Random(name)
    kept = packets[len(packets) // 3 :] if way == "late" else [x for x in packets if chance.random() > 0.02]
    path = folder / f"{name}.pcap"
    path.write_bytes(head + b"".join(kept))
    return path


@pytest.mark.parametrize(("name", "way"), one_in(2, [*product(NAMES, ("whole", "lost", "late"))]))
def test_rows_are_the_same_in_windows_of_one_packet(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = CAPTURES / f"{name}.pcap" if way == "whole" else damaged(name, way, tmp_path)
    expected = rows_of(path, name)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    assert rows_of(path, name) == expected


@pytest.mark.parametrize("name", NAMES)
def test_hellos_in_one_window_are_read_without_an_object(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = captures([str(CAPTURES / f"{name}.pcap")]).captures
    rows = Dissection(capture)
    stages = Pipeline(Options(), rows.add, capture.files[0])
    for window in capture.windows():
        stages.feed(window)

    assert not stages.opener.connections
    list(stages.finish())
    assert None not in rows.table("connections")["tls_cipher"].to_pylist()
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    assert tables(dissect(capture)) == tables(rows)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_same_if_the_state_is_dumped_between_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake dumps the state after each file, without secrets."""
    path = CAPTURES / f"{name}.pcap"
    expected = rows_of(path, name)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 5)
    (capture,) = captures([str(path)]).captures
    keys, rows = keys_of(name), Dissection(capture)
    secrets = [x for line in Path(keys.path or "").read_text().splitlines() for x in line.split()[2:3]]
    stages = Pipeline(Options(keys=keys), rows.add, capture.files[0], lambda index: capture.files[index])
    for window in capture.windows():
        stages.feed(window)
        state = pickle.dumps(stages)
        assert not any(bytes.fromhex(secret) in state for secret in secrets if len(secret) >= 64)
        stages = pickle.loads(state)
        stages.emit, stages.file_name = rows.add, lambda index: capture.files[index]
        stages.use_keys(keys)
    stages.lost_fragments()
    list(stages.finish())

    assert tables(rows) == expected


@pytest.mark.parametrize("way", ["lost", "late"])
@pytest.mark.parametrize("name", one_in(2, sorted(path.stem for path in CAPTURES.glob("*.keylog"))))
def test_no_byte_is_invented(name: str, way: str, tmp_path: Path) -> None:
    """Each run of bytes that a reader gets of a damaged capture is one of the whole capture, or ciphertext."""
    whole, _ = opened(CAPTURES / f"{name}.pcap", keys_of(name))
    clear = ["".join(map(chr, b"".join(part for _, part in sorted(parts.items())))) for parts in whole.values()]
    path = damaged(name, way, tmp_path)
    streams, rows = opened(path, keys_of(name))
    raw, _ = opened(path, None)
    received = [part for parts in raw.values() for part in parts.values()]

    assert way == "late" or any(c["tls"] == "opened" for c in rows["connections"])
    for parts in streams.values():
        for part in parts.values():
            text = "".join(map(chr, part))
            assert any(text in data for data in clear) or any(part in data for data in received)
    assert read(path, Options(keys=keys_of(name))).connections
