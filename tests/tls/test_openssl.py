"""TLS of the commands of OpenSSL, beyond Python's ssl: early data, key updates, padding, renegotiation."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from made_tls import Recorder, capture
from opened_tls import opened, stream
from torture import Segment, broken_laws, read

from mqpcap.options import Options
from mqpcap.tls import KeyLog

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH")


@pytest.fixture
def recorder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Recorder]:
    recorder = Recorder(tmp_path, *request.param)
    yield recorder
    recorder.close()


def streams_of(segments: Sequence[Segment], folder: Path) -> tuple[bytes, bytes]:
    """Both plaintext streams of a capture."""
    path = folder / "x.pcap"
    path.write_bytes(capture(segments))
    streams, _ = opened(path, KeyLog(str(folder / "keys.log")))
    assert broken_laws(read(path, Options(keys=KeyLog(str(folder / "keys.log"))))) == []
    return stream(streams[0, 0]), stream(streams[0, 1])


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("recorder", [("-tls1_3", "-early_data"), ("-tls1_3", "-rev")], indirect=True)
def test_early_data_is_read_if_the_server_takes_it(recorder: Recorder, has_key: bool, tmp_path: Path) -> None:
    """A server without -early_data refuses it, and the client sends it again."""
    early = b"".join(b"early line %d\n" % i for i in range(300))
    (tmp_path / "early").write_bytes(early)
    recorder.connect([b"first\n"], "-tls1_3", "-sess_out", str(tmp_path / "session"))
    (tmp_path / "keys.log").unlink()
    resumed = ("-sess_in", str(tmp_path / "session"), "-early_data", str(tmp_path / "early"))
    segments = recorder.connect([b"later\n"], "-tls1_3", *resumed)
    lines = (tmp_path / "keys.log").read_text().splitlines()
    kept = [line for line in lines if has_key or "EARLY" not in line]
    (tmp_path / "keys.log").write_text("\n".join(kept))
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    streams, rows = opened(path, KeyLog(str(tmp_path / "keys.log")))

    data = b"".join(part for _, part in sorted(streams[0, 0].items()))
    assert data.endswith(b"later\n") and rows["connections"][0]["tls"] == "opened"
    assert data in (early + b"later\n", b"later\n")
    assert broken_laws(read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))) == []


@pytest.mark.parametrize("recorder", [("-tls1_3", "-rev")], indirect=True)
def test_three_key_updates_in_a_row(recorder: Recorder, tmp_path: Path) -> None:
    segments = recorder.connect([b"one\n", b"K\n", b"k\n", b"K\n", b"two\n", b"k\n", b"three\n"], "-tls1_3")
    client, server = streams_of(segments, tmp_path)

    assert client == b"one\ntwo\nthree\n"
    assert server == b"eno\n"  # this server of OpenSSL answers nothing after the first update


@pytest.mark.parametrize("recorder", [("-tls1_3", "-rev", "-record_padding", "512")], indirect=True)
def test_padding_is_no_data(recorder: Recorder, tmp_path: Path) -> None:
    client, server = streams_of(recorder.connect([b"a\n", b"b\n"], "-tls1_3"), tmp_path)

    assert (client, server) == (b"a\nb\n", b"a\nb\n")


@pytest.mark.parametrize("recorder", [("-tls1_2", "-rev", "-client_renegotiation")], indirect=True)
def test_a_connection_is_opened_up_to_its_renegotiation(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(recorder.connect([b"before\n", b"R\n", b"after\n"], "-tls1_2")))
    streams, rows = opened(path, KeyLog(str(tmp_path / "keys.log")))

    assert (streams[0, 0][0], streams[0, 1][0]) == (b"before\n", b"erofeb\n")
    assert "tls: renegotiated" in {problem["reason"] for problem in rows["problems"]}
    assert broken_laws(read(path, Options(keys=KeyLog(str(tmp_path / "keys.log"))))) == []
