"""The catalog of a lake comes back as it was saved, and damaged ones are refused in one line."""

import gzip
from pathlib import Path

import pytest

from mqpcap.delta.catalog import FOLDER, Catalog, Recording, TakenFile, head_of, load_catalog, save
from mqpcap.errors import OutputError

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def test_catalog_comes_back(tmp_path: Path) -> None:
    file = TakenFile(
        "a/x.pcap", "00ff", {"first_ts_ns": 5, "last_ts_ns": 9, "link_types": ["Ethernet"]}, [("a/x.pcap", 3, 4)]
    )
    catalog = Catalog(
        7, {"bodies": None}, [Recording("a/x.pcap", ("/a", "x.pcap"), [file], "000007.state")], ["b"], ["c"]
    )
    (tmp_path / FOLDER).mkdir()

    save(tmp_path / FOLDER / "000007.json", catalog.text().encode())

    read = load_catalog(tmp_path, 7)
    assert read.text() == catalog.text()
    assert (read.recordings[0].first_ns, read.recordings[0].last_ns) == (5, 9)
    assert read.recordings[0].files[0].stats == {("a/x.pcap", 3, 4)}


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    save(tmp_path / "state", b"secret")

    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"format": 0}', b'{"format": 1, "recordings": [{}]}'])
def test_damaged_catalog_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FOLDER).mkdir()
    save(tmp_path / FOLDER / "000001.json", content)

    with pytest.raises(OutputError) as error:
        load_catalog(tmp_path, 1)

    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(OutputError, match="cannot be read"):
        load_catalog(tmp_path, 2)


def test_beginning_of_a_file_is_known_by_its_packets(tmp_path: Path) -> None:
    path, other = PCAPS / "fq" / "session.pcap", PCAPS / "fq" / "peers.pcap"
    packed = tmp_path / "renamed.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(path.read_bytes()[:24])

    assert head_of(str(packed)) == head_of(str(path)) != head_of(str(other))
    assert head_of(str(empty)) == ""
