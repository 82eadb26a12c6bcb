"""``--keylog`` as users give it."""

from pathlib import Path

import pytest
from opened_tls import CAPTURES
from running import run

import mqpcap

CAPTURE, KEY_LOG = CAPTURES / "t13_aes256_gcm.pcap", CAPTURES / "t13_aes256_gcm.keylog"


def test_show_prints_the_messages_of_an_opened_connection() -> None:
    done = run("show", CAPTURE, "--keylog", KEY_LOG, "-q")

    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 112


def test_python_opens_with_the_same_file() -> None:
    assert mqpcap.read(CAPTURE, keylog=KEY_LOG).num_rows == 112
    assert mqpcap.read(CAPTURE).num_rows == 0


def test_a_missing_key_log_is_misuse_in_one_line(tmp_path: Path) -> None:
    done = run("show", CAPTURE, "--keylog", tmp_path / "none.log")

    assert done.exit_code == 2
    assert "none.log cannot be read: No such file or directory" in done.stderr


@pytest.mark.parametrize("content", [b"", b"\0" * 4000, b"CLIENT_RANDOM 00 11\n" * 10])
def test_a_file_without_secrets_opens_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k.log").write_bytes(content)

    assert mqpcap.read(CAPTURE, keylog=tmp_path / "k.log").num_rows == 0
