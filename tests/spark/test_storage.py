"""Inputs and outputs behind URIs are those of local paths."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from dissection import dissect
from in_process_spark import InProcessSpark
from pyarrow import fs
from rows import of_dissections, of_export, rotated

from mqpcap.capture import captures
from mqpcap.capture.remote import redacted_uri
from mqpcap.cli import main
from mqpcap.errors import CaptureError, OutputError
from mqpcap.pipeline import Options
from mqpcap.spark import job, partitions, storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = InProcessSpark()
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def without_names(rows: dict[str, list[str]], folder: str) -> dict[str, list[str]]:
    return {table: sorted(row.replace(folder, "") for row in found) for table, found in rows.items()}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 server on loopback: how it is reached, as options of a URI."""
    pytest.importorskip("moto", reason="moto is in the test extra")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 1200
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until and server.poll() is None, "no S3 server"
                time.sleep(0.1)
        options = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1&allow_bucket_creation=true"
        system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{options}")
        system.create_dir("captures")
        yield options
    finally:
        server.kill()
        server.wait()


def test_export_from_and_to_s3_is_the_local_one(bucket: str, tmp_path: Path) -> None:
    """Chained there, dealt out to shares, replaced by a second run; the key is in no table, manifest or message."""
    files = rotated(PCAPS / "fq/session.pcap", tmp_path, 3)
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    for file in files:
        with system.open_output_stream(f"captures/day/{file.name}") as out:
            out.write(file.read_bytes())
    uri = f"s3://key:secret@captures/{{}}?{bucket}"

    found = captures([uri.format("day")])
    for _ in range(2):
        job.export(SPARK, found.captures, uri.format("out/tables"), Options(), share_count=3)

    fs.copy_files("captures/out", str(tmp_path / "out"), source_filesystem=system)
    made = of_export(tmp_path / "out/tables")
    expected = of_dissections([dissect(captures([str(tmp_path / f.name) for f in files]).captures[0])])
    assert found.captures[0].files == tuple(f"s3://captures/day/{file.name}" for file in files)
    assert without_names(made, "s3://captures/day") == without_names(expected, str(tmp_path))
    left = system.get_file_info(fs.FileSelector("captures", recursive=True))
    assert {info.path.split("/")[1] for info in left} == {"day", "out"}
    assert {info.path.split("/")[2] for info in left if info.path.startswith("captures/out/")} == {"tables"}
    assert b"secret" not in (tmp_path / "out/tables/_mqpcap.json").read_bytes()


@pytest.mark.parametrize("place", ["alone", "alone/*.pcap*", "alone/part.pcap1"])
def test_local_export_reads_s3(bucket: str, tmp_path: Path, place: str) -> None:
    """As from a folder of this machine; no secret is in what is printed or written."""
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    files = rotated(PCAPS / "fq/session.pcap", tmp_path, 3)
    for file in files:
        put(system, f"alone/{file.name}", file.read_bytes())
    taken = [file for file in files if place.endswith(file.name)] or files
    expected = of_dissections([dissect(captures([*map(str, taken)]).captures[0])])

    done = CliRunner().invoke(
        main, ["export", f"s3://key:secret@captures/{place}?{bucket}", "--out", str(tmp_path / "out")]
    )

    assert done.exit_code == 0, done.stderr
    made = without_names(of_export(tmp_path / "out"), "s3://captures/alone")
    assert made == without_names(expected, str(tmp_path))
    assert "secret" not in done.stderr + "".join(row for rows in of_export(tmp_path / "out").values() for row in rows)


def test_what_a_uri_cannot_be_is_a_line_without_its_secret(bucket: str, tmp_path: Path) -> None:
    local, uri = str(PCAPS / "flymq/core.pcap"), f"s3://key:secret@captures/none?{bucket}"
    lines = []
    for words in (["show", uri], ["export", local, "--out", uri], ["export", uri, "--append", str(tmp_path / "lake")],
                  ["export", local, "--append", uri]):  # fmt: skip
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1
        lines += [line for line in done.stderr.splitlines() if line.startswith("mqpcap: s3:")]

    assert lines == [
        "mqpcap: s3://captures/none: no such file",
        "mqpcap: s3://captures/none is no path of this machine; mqpcap spark export --out writes to stores",
        "mqpcap: s3://captures/none: a lake takes files of this machine",
        "mqpcap: s3://captures/none is no path of this machine; mqpcap spark export --out writes to stores",
    ]


def test_missing_bucket_is_named_without_a_key_inside(bucket: str) -> None:
    found = captures([f"s3://key:secret@none/*.pcap?{bucket}"])
    samples = captures([str(PCAPS / "flymq/core.pcap")]).captures

    assert found.unreadable == [("s3://none/*.pcap", "there is no bucket 'none'")]
    with pytest.raises(OutputError, match=r"^cannot write s3://none/tables: there is no bucket 'none'$"):
        job.export(SPARK, samples, f"s3://key:secret@none/tables?{bucket}", Options())
    with pytest.raises(OutputError, match=r"^s3://captures is a whole bucket; name a folder in it$"):
        job.export(SPARK, samples, f"s3://key:secret@captures?{bucket}", Options())


def in_bucket(system: fs.FileSystem, name: str) -> dict[str, bytes]:
    """Every file below a name in the bucket, and below the staging directory beside it."""
    found = system.get_file_info(fs.FileSelector("captures", recursive=True))
    paths = [i.path for i in found if i.type == fs.FileType.File and i.path.split("/")[1].strip(".").startswith(name)]
    return {path: system.open_input_stream(path).read() for path in paths}


def put(system: fs.FileSystem, name: str, content: bytes) -> None:
    with system.open_output_stream(f"captures/{name}") as out:
        out.write(content)


@pytest.mark.parametrize(("stranger", "is_named"), [
    ("thesis.txt", True), ("messages/.hidden", False), ("messages/date=2026-11-21/part-00007.parquet", True),
])  # fmt: skip
def test_bucket_with_something_else_stays(bucket: str, stranger: str, is_named: bool) -> None:
    """Whether or not a manifest names it: somebody else may have written that."""
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    place = f"stays{is_named}{len(stranger)}"
    uri = f"s3://key:secret@captures/{place}?{bucket}"
    found = captures([str(PCAPS / "flymq/core.pcap")]).captures
    job.export(SPARK, found, uri, Options())
    put(system, f"{place}/{stranger}", b"mine")
    if is_named:
        manifest = json.loads(in_bucket(system, place)[f"captures/{place}/_mqpcap.json"])
        manifest["files"].append({"path": stranger, "row_count": 1, "size_bytes": 4})
        put(system, f"{place}/_mqpcap.json", json.dumps(manifest).encode())
    before = in_bucket(system, place)

    with pytest.raises(OutputError, match=re.escape(f"s3://captures/{place} holds {stranger!r}")):
        job.export(SPARK, found, uri, Options())

    assert in_bucket(system, place) == before


def test_what_comes_into_the_bucket_during_the_job_stays(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    uri = f"s3://key:secret@captures/late?{bucket}"
    found = captures([str(PCAPS / "flymq/core.pcap")]).captures
    job.export(SPARK, found, uri, Options())
    before = in_bucket(system, "late")
    run = job._Job.run
    monkeypatch.setattr(job._Job, "run", lambda *given: (put(system, "late/thesis.txt", b"mine"), run(*given))[1])

    with pytest.raises(OutputError, match="thesis"):
        job.export(SPARK, found, uri, Options())

    after = {name: data for name, data in in_bucket(system, "late").items() if name.startswith("captures/late/")}
    assert after == before | {"captures/late/thesis.txt": b"mine"}


def test_bucket_keeps_an_earlier_export_where_an_input_failed(bucket: str, tmp_path: Path) -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    uri = f"s3://key:secret@captures/kept?{bucket}"
    for name in ("core", "fetch"):
        (tmp_path / f"{name}.pcap").write_bytes((PCAPS / f"flymq/{name}.pcap").read_bytes())
    found = captures([str(tmp_path)]).captures
    job.export(SPARK, found, uri, Options())
    before = in_bucket(system, "kept")
    (tmp_path / "core.pcap").unlink()

    with pytest.raises(OutputError, match="stays as it was"):
        job.export(SPARK, found, uri, Options(), is_missing=True)
    kept = job.export(SPARK, found, uri, Options())
    after = {name: data for name, data in in_bucket(system, "kept").items() if name.startswith("captures/kept/")}
    allowed = job.export(SPARK, found, uri, Options(), allow_missing=True)

    assert kept.summary is None and kept.refusal is not None
    assert after == before
    assert allowed.summary is not None
    assert {name.split("/")[1] for name in in_bucket(system, "kept")} == {"kept"}
    assert in_bucket(system, "kept") != before


def test_spark_reads_a_glob_in_s3(bucket: str, spark: "SparkSession") -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://key:secret@captures?{bucket}")
    for name in ("core", "fetch", "login"):
        with system.open_output_stream(f"captures/glob/{name}.pcap") as out:
            out.write((PCAPS / f"flymq/{name}.pcap").read_bytes())

    frame = spark.read.format("mqpcap").load(f"s3://key:secret@captures/glob/[cf]*?.pcap?{bucket}")

    counted = {row.capture_file: row["count"] for row in frame.groupBy("capture_file").count().collect()}
    assert counted == {
        f"s3://captures/glob/{name}.pcap": sum(
            chunk.messages.num_rows for chunk in dissect(*captures([f"{PCAPS}/flymq/{name}.pcap"]).captures).chunks
        )
        for name in ("core", "fetch")
    }  # fmt: skip


def test_missing_bucket_is_reported_without_its_key(bucket: str) -> None:
    found = captures([f"s3://key:secret@nowhere/day?{bucket}"])

    ((name, reason),) = found.unreadable
    assert name == "s3://nowhere/day"
    assert reason and "secret" not in reason


def test_captures_of_uris_are_grouped_and_sorted_out(tmp_path: Path) -> None:
    rotated(PCAPS / "flymq/core.pcap", tmp_path, 3)
    (tmp_path / "notes.txt").write_text("no capture")

    found = captures([f"file://{tmp_path}", "file:///nowhere/x.pcap"])

    assert [capture.files for capture in found.captures] == [
        tuple(f"file://{tmp_path}/part.pcap{n}" for n in ("", "1", "2"))
    ]
    assert [name for name, _ in found.skipped] == [f"file://{tmp_path}/notes.txt"]
    assert [name for name, _ in found.unreadable] == ["file:///nowhere/x.pcap"]


def test_missing_path_of_a_uri_is_an_error() -> None:
    found = captures([f"file://{PCAPS}/flymq", "file:///nowhere/x.pcap"])

    with pytest.raises(CaptureError, match=r"file:///nowhere/x\.pcap: no such file"):
        partitions.check_readable(found.unreadable, permissive=True)


def test_glob_in_a_uri() -> None:
    found = captures([f"file://{PCAPS}/flymq/[cf]*.pcap"])

    expected = sorted(path.name for path in (PCAPS / "flymq").glob("[cf]*.pcap"))
    assert [Path(capture.files[0]).name for capture in found.captures] == expected


def test_export_from_and_to_uris_is_the_local_one(tmp_path: Path) -> None:
    rotated(PCAPS / "fq/session.pcap", tmp_path, 3)
    out = f"file://{tmp_path}/out/tables"

    for _ in range(2):  # the second replaces the first
        made = job.export(SPARK, captures([f"file://{tmp_path}"]).captures, out, Options(), share_count=2)

    expected = of_dissections([dissect(captures([str(tmp_path)]).captures[0])])
    assert without_names(of_export(tmp_path / "out/tables"), "file://") == expected
    manifest = json.loads((tmp_path / "out/tables/_mqpcap.json").read_text())
    assert made.summary is not None
    assert sum(file["row_count"] for file in manifest["files"]) == made.summary.row_count
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tables"]


def test_a_foreign_file_at_the_uri_stays(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/thesis.txt").write_text("mine")

    with pytest.raises(OutputError, match="thesis"):
        job.export(
            InProcessSpark(),
            captures([str(PCAPS / "flymq/core.pcap")]).captures,
            f"file://{tmp_path}/tables",
            Options(),
        )


@pytest.fixture(params=["{}", "file://{}"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> storage.Storage:
    """A directory that is not there yet, as a path and behind a URI."""
    return storage.Storage(request.param.format(tmp_path / "tables"))


def test_what_is_written_is_read_and_counted(folder: storage.Storage, tmp_path: Path) -> None:
    assert (folder.read("a/b"), folder.sizes()) == (None, {})

    folder.write("a/b", b"first")
    folder.write("a/b", b"second")
    with folder.output("c") as out:
        out.write(b"third")

    assert folder.read("a/b") == b"second"
    with folder.input("a/b") as file:
        assert (file.read_at(3, 2), file.size()) == (b"con", 6)
    assert folder.sizes() == {"a/b": 6, "c": 5}
    assert folder.sizes("a") == {"a/b": 6}
    assert (tmp_path / "tables/a/b").read_bytes() == b"second"


def test_file_appears_whole_or_not_at_all(folder: storage.Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("manifest", b"earlier")
    opened: list[str] = []
    output = storage.Storage.output
    monkeypatch.setattr(storage.Storage, "output", lambda self, name: (opened.append(name), output(self, name))[1])

    with pytest.raises(TypeError):
        folder.write("manifest", None)  # type: ignore[arg-type]

    assert opened != ["manifest"]
    assert folder.read("manifest") == b"earlier"


def test_file_is_moved_beside_and_removed_once(folder: storage.Storage) -> None:
    staging = folder.beside(".", ".staging")
    staging.write("done/x", b"rows")

    staging.move("done/x", folder, "messages/date=2026-11-21/part-00000.parquet")
    folder.remove_file("no such file")

    assert (staging.sizes(), folder.sizes()) == ({}, {"messages/date=2026-11-21/part-00000.parquet": 4})
    folder.remove_file("messages/date=2026-11-21/part-00000.parquet")
    assert folder.sizes() == {}


@pytest.mark.parametrize(("uri", "beside"), [
    ("tables", ".tables-x"), ("/tables/", "/.tables-x"), ("a/b", "a/.b-x"),
    ("s3://key:secret@bucket/day?region=x", "s3://key:secret@bucket/.day-x?region=x"),
])  # fmt: skip
def test_directory_beside_is_reached_the_same_way(uri: str, beside: str) -> None:
    assert storage.Storage(uri).beside(".", "-x").uri == beside


def test_only_files_of_an_export_are_removed(folder: storage.Storage) -> None:
    """Behind a URI all or nothing."""
    ours = re.compile(r"part-[0-9]+")
    folder.write("part-1", b"")
    assert folder.find_foreign_file(ours) is None
    folder.write("part-1b", b"mine")

    assert folder.find_foreign_file(ours) == "part-1b"
    folder.remove(ours)
    assert folder.sizes() == ({"part-1b": 4} if folder.is_local else {"part-1": 0, "part-1b": 4})
    folder.remove_file("part-1b")
    folder.remove(ours)
    assert not folder.path("").exists()


def test_a_link_is_not_an_export_directory(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "tables").symlink_to("far")

    with pytest.raises(OutputError, match="is a symbolic link"):
        storage.Storage(str(tmp_path / "tables")).find_foreign_file(re.compile(".*"))


@pytest.mark.parametrize("uri", ["nowhere://key:{}@host/x", "s3://key:{}@host/x", "s3://key:{}@host/x?region=y"])
def test_unreadable_file_system_is_reported_without_the_secret(uri: str) -> None:
    """A slash in a secret makes a URI that is none."""
    secret = "se/cret"

    ((name, reason),) = captures([uri.format(secret)]).unreadable
    with pytest.raises(OutputError, match=r"^cannot open [^\n]+$") as told:
        storage.Storage(uri.format(secret)).open_filesystem()

    assert name == f"{uri.partition('://')[0]}://host/x"
    assert not any(part in text for text in (reason, str(told.value)) for part in ("key:", "se/", "cret"))


@pytest.mark.parametrize(("uri", "as_shown"), [
    ("s3://key:secret@bucket/a@b.pcap", "s3://bucket/a@b.pcap"), ("s3://bucket/a:b@c.pcap", "s3://bucket/a:b@c.pcap"),
    ("hdfs://host:8020/a@b.pcap", "hdfs://host:8020/a@b.pcap"), ("hdfs://user@host:8020/x", "hdfs://host:8020/x"),
    ("/a://key:secret@b", "/a://key:secret@b"),
])  # fmt: skip
def test_only_what_stands_before_the_host_is_hidden(uri: str, as_shown: str) -> None:
    assert redacted_uri(uri) == as_shown


@pytest.mark.parametrize(("pattern", "names"), [
    ("*.pcap", ["x.pcap"]), ("a/*.pcap", ["a/x.pcap"]), ("**/*.pcap", ["a/b/x.pcap", "a/x.pcap", "x.pcap"]),
    ("a/[bc]/?.pcap", ["a/b/x.pcap"]), ("b/*.pcap", []), ("a/*", ["a/x.pcap"]),
])  # fmt: skip
def test_glob_fits_names_and_two_stars_any_depth(tmp_path: Path, pattern: str, names: list[str]) -> None:
    """As pathlib does."""
    for name in ("x.pcap", "a/x.pcap", "a/b/x.pcap", "a/b/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((PCAPS / "flymq/core.pcap").read_bytes())

    found = captures([f"file://{tmp_path}/{pattern}"])

    assert [file.removeprefix(f"file://{tmp_path}/") for c in found.captures for file in c.files] == names
    assert names == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(pattern) if path.is_file())
    assert len(found.unreadable) == (not names)
