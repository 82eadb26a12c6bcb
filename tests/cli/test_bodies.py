"""Bodies alone: raw, as files, and as records of one shape."""

import base64
import hashlib
from pathlib import Path

import pytest
from running import objects, run

import mqpcap

CORE, FETCH = "pcaps/flymq/core.pcap", "pcaps/flymq/fetch.pcap"
FETCHED = "records.value exists"


def test_raw_bodies_are_the_values_of_messages_and_records() -> None:
    """As ``kcat -C`` prints them; a FETCH reply has a value for each record."""
    with mqpcap.open(FETCH) as recording:
        records = [r["value"] for row in recording.table("flymq")["records"].to_pylist() for r in row or ()]

    lines = run("show", "-q", "--raw-body", "-Y", FETCHED, FETCH).stdout.splitlines()

    assert lines == [value.decode() for value in records] != []
    assert run("show", "-q", "--raw-body", "--op", "PRODUCE", "-c", "2", CORE).stdout == "hello\n"


def test_each_body_is_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"

    ended = run("show", "-q", "--bodies-to", folder, "--op", "PRODUCE", CORE)

    files = sorted(folder.iterdir())
    assert (ended.exit_code, ended.stdout, files[0].name) == (0, "", "000001_c1_26.bin")
    assert files[0].read_bytes() == b"hello"
    with mqpcap.open(CORE) as recording:
        rows = recording.table("flymq").filter(_is_request(recording, "PRODUCE"))
        values = [value for value in rows["value"].to_pylist() if value is not None]
    assert [hashlib.sha256(x.read_bytes()).digest() for x in files] == [hashlib.sha256(x).digest() for x in values]


def _is_request(recording: mqpcap.Recording, op: str) -> object:
    import pyarrow.compute as pc

    table = recording.table("flymq")
    return pc.and_(pc.equal(table["op"].cast("string"), op), pc.equal(table["direction"].cast("string"), "c2s"))


def test_nothing_is_written_to_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    ended = run("show", "--bodies-to", tmp_path, CORE)

    assert (ended.exit_code, [x.name for x in tmp_path.iterdir()]) == (1, ["mine"])
    assert "is not empty" in ended.stderr


def test_records_have_every_key_and_the_body_as_asked() -> None:
    text, coded = (objects(run("show", "-q", "--json", "--body-encoding", form, CORE)) for form in ("text", "base64"))

    assert len({tuple(row) for row in text + coded}) == 1
    assert [
        base64.b64decode(str(row["body"])).decode("utf-8", "replace") for row in coded if row["body"] is not None
    ] == [row["body"] for row in text if row["body"] is not None]
    assert (text[0]["connection"], text[0]["client"], text[0]["server"]) == ("c1", "127.0.0.1:40730", "127.0.0.1:9092")


@pytest.mark.parametrize(
    "words", [("--body-encoding", "text"), ("--raw-body", "--json"), ("--raw-body", "--bodies-to", "x"),
              ("--bodies-to", "x", "-v")]
)  # fmt: skip
def test_misuse_is_2(words: tuple[str, ...], tmp_path: Path) -> None:
    assert run("show", *words, str(Path(CORE).resolve()), cwd=tmp_path).exit_code == 2
