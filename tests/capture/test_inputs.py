"""What the user named to captures: files, directories, globs and standard input."""

import gzip
import io
import os
from pathlib import Path

import pytest
from capture_files import THREE, interface, packets, pcap, seconds, section, written

from mqpcap.capture import captures
from mqpcap.errors import CaptureError


def test_a_named_file_that_is_no_capture_is_named_though_its_folder_was_searched(tmp_path):
    written(tmp_path, "a.pcap", seconds(0))
    note = written(tmp_path, "note.txt", b"hello, this is no capture")

    found = captures([str(tmp_path), note])

    assert found.unreadable == [(note, "not a capture: it begins with 68 65 6c 6c")]


def test_stdin_is_read_once(tmp_path):
    found = captures(["-"], io.BytesIO(gzip.compress(pcap(THREE))))
    (capture,) = found.captures

    assert capture.files == ("-",)
    assert len(packets(list(capture.windows()))) == 3
    with pytest.raises(CaptureError, match="pipe"):
        list(capture.windows())


def test_named_strangers_are_unreadable_each_with_a_reason(tmp_path):
    names = [written(tmp_path, "empty", b""), written(tmp_path, "text", b"hello there"), str(tmp_path / "absent")]
    names.append(written(tmp_path, "text.gz", gzip.compress(b"hello there")))
    good = written(tmp_path, "good", pcap(THREE))

    found = captures([*names, good])

    assert [capture.files for capture in found.captures] == [(good,)]
    assert [name for name, _ in found.unreadable] == names
    assert "empty" in found.unreadable[0][1]
    assert "68 65 6c 6c" in found.unreadable[1][1]
    assert "no such file" in found.unreadable[2][1]
    assert "gzip" in found.unreadable[3][1]
    assert found.skipped == []


def test_directory_is_searched_below_and_strangers_are_skipped(tmp_path):
    written(tmp_path, "b/x.bin", pcap(THREE))
    written(tmp_path, "a.txt", pcap(THREE))
    written(tmp_path, "b/readme", b"hello there")
    written(tmp_path, "b/c/deep", gzip.compress(section() + interface()))

    found = captures([str(tmp_path)])

    names = [f"{tmp_path}/a.txt", f"{tmp_path}/b/c/deep", f"{tmp_path}/b/x.bin"]
    assert [capture.files for capture in found.captures] == [(name,) for name in names]
    assert [name for name, _ in found.skipped] == [f"{tmp_path}/b/readme"]
    assert found.unreadable == []


def test_directory_is_named_as_given(tmp_path, monkeypatch):
    written(tmp_path, "d/x", pcap(THREE))
    monkeypatch.chdir(tmp_path)

    assert [captures([name]).captures[0].files for name in ("d", "d/", ".", "./d")] == [
        ("d/x",),
        ("d/x",),
        ("./d/x",),
        ("./d/x",),
    ]


def test_directory_without_captures_is_unreadable(tmp_path):
    written(tmp_path, "readme", b"hello there")

    found = captures([str(tmp_path)])

    assert [name for name, _ in found.unreadable] == [str(tmp_path)]
    assert len(found.skipped) == 1


def test_directory_that_links_to_itself_is_entered_once(tmp_path):
    written(tmp_path, "d/x", pcap(THREE))
    (tmp_path / "d" / "again").symlink_to(tmp_path / "d")

    assert len(captures([str(tmp_path)]).captures) == 1


def test_link_to_nowhere_and_pipe_in_a_directory_are_skipped(tmp_path):
    written(tmp_path, "x", pcap(THREE))
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")

    assert len(captures([str(tmp_path)]).skipped) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_unreadable_also_in_a_directory(tmp_path):
    written(tmp_path, "good", pcap(THREE))
    Path(written(tmp_path, "closed", pcap(THREE))).chmod(0)

    assert len(captures([str(tmp_path)]).unreadable) == 1


def test_file_reached_twice_is_read_once_under_its_first_name(tmp_path):
    name = written(tmp_path, "d/x", pcap(THREE))
    (tmp_path / "link").symlink_to(name)
    os.link(name, tmp_path / "hard")

    found = captures([str(tmp_path / "link"), name, str(tmp_path / "d"), str(tmp_path / "hard")])

    assert [capture.files for capture in found.captures] == [(str(tmp_path / "link"),)]
    assert found.unreadable == []


def test_glob(tmp_path):
    for name in ("a.one", "b.one", "c.two"):
        written(tmp_path, name, pcap(THREE))

    found = captures([str(tmp_path / "*.one"), str(tmp_path / "*.none")])

    assert [capture.files for capture in found.captures] == [(str(tmp_path / "a.one"),), (str(tmp_path / "b.one"),)]
    assert found.unreadable == [(str(tmp_path / "*.none"), "no file matches")]


def test_file_whose_name_looks_like_a_glob(tmp_path):
    name = written(tmp_path, "x[1].pcap", pcap(THREE))

    assert captures([name]).captures[0].files == (name,)


def test_windows_of_a_chain_say_their_file(tmp_path):
    for number in range(3):
        written(tmp_path, f"b.pcap{number}", seconds(number, number))
    capture = captures([str(tmp_path)]).captures[0]

    assert [(window.file, window.packet_number.tolist()) for window in capture.windows()] == [
        (file, [1, 2]) for file in range(3)
    ]
    assert [facts.packet_count for facts in capture.facts] == [2, 2, 2]


def test_braces_are_alternatives_unless_a_file_has_that_name(tmp_path: Path) -> None:
    for k, name in enumerate(("a1.pcap", "b1.pcap", "c{1,2}.pcap")):
        (tmp_path / name).write_bytes(pcap([(k, b"abc")]))

    found = captures([f"{tmp_path}/{{a,b,d}}{{1,1}}.pcap", f"{tmp_path}/c{{1,2}}.pcap"])

    assert [Path(c.files[0]).name for c in found.captures] == ["a1.pcap", "b1.pcap", "c{1,2}.pcap"]
    assert found.unreadable == [(f"{tmp_path}/d1.pcap", "no such file")] * 2
