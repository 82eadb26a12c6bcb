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


@pytest.mark.parametrize("options", [(), ("--keylog", KEY_LOG)])
def test_info_says_what_was_negotiated_with_and_without_keys(options: tuple[object, ...]) -> None:
    done = run("info", CAPTURE, *options)

    state = "opened" if options else "closed"
    assert f"2 connections {state}: TLS 1.3, TLS_AES_256_GCM_SHA384" in " ".join(done.stdout.split())


def test_connections_have_the_facts_of_the_hellos() -> None:
    """tshark has suite 0xc030 in the ServerHello, and no name."""
    names = ["tls", "tls_version", "tls_cipher", "tls_server_name", "tls_alpn"]
    rows = mqpcap.read(CAPTURES / "mqtt_t12_resumed.pcap", "connections", columns=names).to_pylist()

    expected = ["closed", "TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", None, None]
    assert [list(row.values()) for row in rows] == [expected] * 3


def test_a_key_log_without_the_keys_of_a_capture_is_one_note() -> None:
    done = run("show", CAPTURE, "--keylog", CAPTURES / "flymq_go_t13.keylog")

    assert done.exit_code == 0
    assert done.stderr.count("TLS") == 1
    assert "2 TLS connections have no secrets in the key log" in done.stderr
