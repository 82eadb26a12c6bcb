"""Key logs in pcapng files, as editcap --inject-secrets puts them there."""

import io
from pathlib import Path

import pytest
from opened_tls import CAPTURES, capture_with_secrets
from running import run

import mqpcap
from mqpcap.capture import captures, windows
from mqpcap.capture.pcapng import PacketFile

NAME = "t13_aes256_gcm"


@pytest.fixture
def with_secrets(tmp_path: Path) -> Path:
    return capture_with_secrets(NAME, tmp_path / "x.pcapng")


def test_the_secrets_of_a_capture_open_it(with_secrets: Path) -> None:
    assert mqpcap.read(with_secrets).num_rows == 112


def test_extract_copies_secrets_only_if_they_may_be_shown(with_secrets: Path, tmp_path: Path) -> None:
    secret = (CAPTURES / f"{NAME}.keylog").read_bytes().split()[-1]
    done = run("extract", with_secrets, "--connections", "--out", tmp_path / "without.pcapng")
    shown = run("extract", with_secrets, "--connections", "--show-secrets", "--out", tmp_path / "with.pcapng")

    assert (done.exit_code, shown.exit_code) == (0, 0), done.stderr + shown.stderr
    assert "--show-secrets copies them" in done.stderr
    assert secret not in (tmp_path / "without.pcapng").read_bytes()
    assert mqpcap.read(tmp_path / "without.pcapng").num_rows == 0
    assert mqpcap.read(tmp_path / "with.pcapng").num_rows == 112


def test_no_secret_is_in_an_export(with_secrets: Path, tmp_path: Path) -> None:
    key_log = (CAPTURES / f"{NAME}.keylog").read_bytes()
    secrets = [line.split()[2] for line in key_log.splitlines() if line[:1] != b"#"]
    for words in ((with_secrets,), (CAPTURES / f"{NAME}.pcap", "--keylog", CAPTURES / f"{NAME}.keylog")):
        for way in ("--out", "--append"):
            folder = tmp_path / f"{way[2:]}{len(words)}"
            done = run("export", *words, way, folder)
            assert done.exit_code == 0, done.stderr
            assert not any(bytes.fromhex(s.decode()).hex().encode() in done.stderr.encode() for s in secrets)
            for path in folder.rglob("*"):
                content = path.read_bytes() if path.is_file() else b""
                assert not any(s in content or bytes.fromhex(s.decode()) in content for s in secrets), path


def test_secrets_without_packets_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of secrets with more bytes than a record may have, and no packet between them, end the file."""
    monkeypatch.setattr(windows, "MAX_RECORD_BYTES", 10_000)
    data = io.BytesIO()
    file = PacketFile(data, "test")
    for _ in range(3):
        file.write_secrets(b"# a comment of a key log\n" * 300)
    file.write(1, 0, bytes(60), 60)
    (tmp_path / "x.pcapng").write_bytes(data.getvalue())
    (capture,) = captures([str(tmp_path / "x.pcapng")]).captures

    assert [*capture.windows()] == []
    assert ["a record claims" in str(note) for note in capture.notes] == [True]
