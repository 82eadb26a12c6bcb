"""Opened TLS on the other roads: raw bytes, a lake, a stream that grows."""

import hashlib
import os
import pickle
from pathlib import Path

import pytest
from dissection import Dissection
from opened_tls import CAPTURES, keys_of, truth
from running import run, run_bytes

from mqpcap.capture import captures
from mqpcap.options import Options
from mqpcap.pipeline import Pipeline
from mqpcap.tls import KeyLog

NAME = "flymq_go_t13"
CAPTURE, KEY_LOG = CAPTURES / f"{NAME}.pcap", CAPTURES / f"{NAME}.keylog"


def test_raw_bytes_of_a_side_are_plaintext() -> None:
    expected = truth(NAME)["connections"][0]["stream_sha256"]["c2s"]
    done = run_bytes("follow", CAPTURE, "c1", "--raw", "c2s", "--show-secrets", "--keylog", KEY_LOG)

    assert hashlib.sha256(done.stdout).hexdigest() == expected


def parts(folder: Path) -> list[Path]:
    """The capture in three files, as a ring writes them."""
    content, records, at = CAPTURE.read_bytes(), [], 24
    while at < len(content):
        end = at + 16 + int.from_bytes(content[at + 8 : at + 12], "little")
        records.append(content[at:end])
        at = end
    third = len(records) // 3
    paths = []
    for i, part in enumerate((records[:third], records[third : 2 * third], records[2 * third :])):
        paths.append(folder / f"x_{i:05d}.pcap")
        paths[-1].write_bytes(content[:24] + b"".join(part))
        os.utime(paths[-1], (1_000_000_000, 1_000_000_000))  # a new file may still grow
    return paths


def test_a_lake_that_gets_a_capture_file_by_file_has_its_messages(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    lake = tmp_path / "lake"
    for path in parts(tmp_path):
        done = run("export", path, "--append", lake, "--keylog", KEY_LOG)
        assert done.exit_code == 0, done.stderr
    done = run("export", "--append", lake, "--finish", "--keylog", KEY_LOG)
    assert done.exit_code == 0, done.stderr

    assert DeltaTable(lake / "messages").to_pyarrow_table().num_rows == 104


def test_a_connection_that_goes_on_without_the_secrets_of_an_earlier_file_is_noted(tmp_path: Path) -> None:
    """They were given for the first file alone."""
    first, *others = parts(tmp_path)
    lake = tmp_path / "lake"
    assert run("export", first, "--append", lake, "--keylog", KEY_LOG).exit_code == 0
    for path in others:
        assert run("export", path, "--append", lake).exit_code == 0
    done = run("export", "--append", lake, "--finish")

    assert "1 TLS connection goes on in files without its secrets" in done.stderr


def test_a_copy_of_the_options_for_another_process_has_no_secret_and_reads_the_file() -> None:
    state = pickle.dumps(Options(keys=keys_of(NAME)))
    secrets = [bytes.fromhex(line.split()[2]) for line in KEY_LOG.read_text().splitlines() if line[0] != "#"]

    assert not any(secret in state for secret in secrets)
    keys = pickle.loads(state).keys
    assert keys is not None and len([*keys.randoms("CLIENT_TRAFFIC_SECRET_0")]) == 2


def test_keys_that_come_after_their_packets_open_a_live_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the connection is held. Each window has one packet; the lines come in the middle of the capture."""
    from mqpcap.capture import windows

    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    path = tmp_path / "keys.log"
    path.touch()
    (capture,) = captures([str(CAPTURE)]).captures
    rows = Dissection(capture)
    stages = Pipeline(
        Options(keys=KeyLog(str(path), grows=True)), rows.add, capture.files[0], lambda i: capture.files[i]
    )
    for number, window in enumerate(capture.windows()):
        if number == 20:
            path.write_bytes(KEY_LOG.read_bytes())
        stages.feed(window)
    stages.lost_fragments()
    list(stages.finish())

    assert rows.table("messages").num_rows == 104
