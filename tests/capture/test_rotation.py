"""A capture file that is still being written, and the files that take its place."""

import gzip
import os
from pathlib import Path

import pytest
from capture_files import packets, seconds, written

from mqpcap.capture import rotation
from mqpcap.capture.inputs import Capture
from mqpcap.capture.rotation import follow_rotation
from mqpcap.capture.sources import InputWait
from mqpcap.errors import CaptureError


class Story:
    """What happens, step by step, each time the reader has waited; then the input is over."""

    def __init__(self, *steps: object) -> None:
        self._steps = [*steps]
        self.told: list[str] = []
        self.wait = InputWait(self._idle, lambda: not self._steps)

    def _idle(self) -> None:
        step = self._steps.pop(0)
        if callable(step):
            step()

    def follow(self, path: Path) -> Capture:
        return follow_rotation(str(path), self.wait, self.told.append)


def add(path: Path, *times: int) -> None:
    """Another packet at each of these seconds; a new file gets its head. The file is newer than all others."""
    is_new = not path.exists()
    with path.open("ab") as file:
        file.write(seconds(*times)[0 if is_new else 24 :])
    newest = max(other.stat().st_mtime_ns for other in path.parent.iterdir()) + 1_000_000
    os.utime(path, ns=(newest, newest))


def times(capture: Capture) -> list[int]:
    return [ts_ns // 10**9 % 100 for ts_ns, *_ in packets(list(capture.windows()))]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LOOK_S", 0)


def at_seconds(*numbers: int) -> list[int]:
    """The same seconds as ``times`` gives them: the first packet of `seconds` comes at 4."""
    return [4 + number for number in numbers]


def test_what_is_written_later_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    add(path, 0)
    story = Story(lambda: add(path, 1), None, lambda: add(path, 2, 3), None)

    assert times(story.follow(path)) == at_seconds(0, 1, 2, 3)
    assert story.told == []


def test_the_next_file_of_a_rotation_goes_on(tmp_path: Path) -> None:
    one, two = tmp_path / "x.pcap", tmp_path / "x.pcap1"
    add(one, 0)
    story = Story(lambda: (add(one, 1), add(two, 2)), None, lambda: add(two, 3), None)
    capture = story.follow(one)

    assert times(capture) == at_seconds(0, 1, 2, 3)
    assert capture.files == (str(one), str(two))
    assert story.told == [f"{one}: goes on in {two}"]


def test_a_file_that_was_moved_away_begins_anew_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    add(path, 0)

    def rotate() -> None:
        path.rename(tmp_path / "kept")
        add(path, 5)

    story = Story(rotate, None, None)

    assert times(story.follow(path)) == at_seconds(0, 5)
    assert story.told == [f"{path}: begun anew"]


def test_a_file_that_was_cut_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    add(path, 0, 1)

    assert times(Story(lambda: path.write_bytes(seconds(7)), None, None).follow(path)) == at_seconds(0, 1, 7)


@pytest.mark.parametrize("other", [("y.pcap1", 2), ("x.pcap1", -2)], ids=["another name", "earlier times"])
def test_a_file_of_another_recording_does_not_go_on(other: tuple[str, int], tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    add(path, 0, 1)
    story = Story(lambda: add(tmp_path / other[0], other[1]), None, None)

    assert times(story.follow(path)) == at_seconds(0, 1)
    assert story.told == []


def test_of_a_directory_the_file_that_was_written_last_is_followed(tmp_path: Path) -> None:
    for name, second in (("a.pcap", 0), ("c.pcap", 1), ("b.pcap", 2)):
        add(tmp_path / name, second)

    capture = Story(None).follow(tmp_path)

    assert capture.files == (str(tmp_path / "b.pcap"),)
    assert times(capture) == at_seconds(2)


def test_an_input_that_cannot_be_followed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no capture in this directory"):
        Story().follow(tmp_path)
    with pytest.raises(CaptureError, match="a gzip file cannot be followed"):
        Story().follow(Path(written(tmp_path, "x.gz", gzip.compress(seconds(0)))))
    with pytest.raises(CaptureError, match="not a capture"):
        Story().follow(Path(written(tmp_path, "x", b"hello there, this is text")))
    with pytest.raises(FileNotFoundError):
        Story().follow(tmp_path / "absent")
