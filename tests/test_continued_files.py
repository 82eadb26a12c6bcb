"""Which files are one recording by what is in them: a connection of one goes on in the other."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from degraded_captures import packets, write
from lakes import add, age
from lakes import of_lake as rows_of_lake
from running import ROOT, run

import mqpcap
from mqpcap.continued_files import captures
from mqpcap.errors import CaptureError

SAMPLE = ROOT / "pcaps/blipmq/qos1.pcap"
CONTENT = SAMPLE.read_bytes()
HEAD, PACKETS = CONTENT[:24], packets(CONTENT)
OF_FILES = ["capture", "capture_file", "first_packet", "last_packet", "request_packet", "reply_packet"]


def parts(folder, *cuts, names=("morning.pcap", "noon.pcap", "later.pcap", "zz.pcap"), packets_of=PACKETS):
    """The sample as files that begin at these packets."""
    borders = [0, *cuts, len(packets_of)]
    for name, start, end in zip(names, borders, borders[1:], strict=False):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, HEAD, packets_of[start:end])


def found(folder):
    """Names of the files of each recording, and the notes."""
    recordings = captures([str(folder)]).captures
    return [[Path(x).name for x in each.files] for each in recordings], [y for x in recordings for y in x.doubts]


def rows(path, table, **options):
    """The rows of a table, sorted, without what depends on files."""
    rows_read = mqpcap.read(path, table, **options)
    return sorted(map(str, rows_read.drop_columns([x for x in OF_FILES if x in rows_read.column_names]).to_pylist()))


@pytest.mark.parametrize("cuts", [(60,), (151,), (40, 230), (50, 120, 300)])
def test_a_connection_that_goes_on_makes_files_of_any_name_one_recording(tmp_path, cuts):
    parts(tmp_path, *cuts)

    assert found(tmp_path) == ([["morning.pcap", "noon.pcap", "later.pcap", "zz.pcap"][: len(cuts) + 1]], [])
    for table in ("messages", "exchanges", "deliveries", "connections"):
        assert rows(tmp_path, table) == rows(SAMPLE, table)


def test_packets_at_the_border_may_have_changed_places(tmp_path):
    """A recorder with two queues: neighbours are in either file, and each file is in order of time."""
    chance, near = random.Random(6), PACKETS[140:148]
    chance.shuffle(near)
    in_first = sorted(near[:4], key=lambda packet: packet.ts_ns)
    in_second = sorted(near[4:], key=lambda packet: packet.ts_ns)
    parts(tmp_path, 144, packets_of=[*PACKETS[:140], *in_first, *in_second, *PACKETS[148:]])

    assert found(tmp_path)[0] == [["morning.pcap", "noon.pcap"]]
    assert rows(tmp_path, "exchanges") == rows(SAMPLE, "exchanges")


def test_where_bytes_are_missing_a_note_names_the_option(tmp_path):
    """Packets 200 to 215 were lost between the files."""
    parts(tmp_path, 200, packets_of=PACKETS[:200] + PACKETS[216:])

    names, notes = found(tmp_path)
    assert names == [["morning.pcap"], ["noon.pcap"]]
    (note,) = notes
    assert "a connection goes on" in note
    assert note.endswith("bytes after " + str(tmp_path / "morning.pcap") + " ends; --one reads them as one recording")
    assert f"note: {note}\n" in run("show", str(tmp_path)).stderr
    assert len(mqpcap.read(str(tmp_path), "captures", one=True)["capture"].unique()) == 1


def test_files_with_the_same_packets_stay_apart(tmp_path):
    """Each goes on in the other nowhere: what follows is in both."""
    parts(tmp_path, names=["a.pcap"])
    parts(tmp_path / "x", names=["whole.pcap"])
    later = [replace(x, ts_ns=x.ts_ns + 3600 * 10**9) for x in PACKETS[150:]]
    parts(tmp_path, names=["an hour later.pcap"], packets_of=later)

    assert found(tmp_path) == ([["a.pcap"], ["an hour later.pcap"], ["whole.pcap"]], [])


def test_connections_go_on_in_files_of_threads_that_overlap(tmp_path):
    """Arkime numbers the files of all its threads together; a thread has all packets of its connections."""
    of_thread = [[x for x in PACKETS if sum(x.ports) % 2 == k] for k in (0, 1)]
    for thread, own in enumerate(of_thread):
        third = len(own) // 3
        names = [f"node-261121-{2 * k + thread + 1:08d}.pcap" for k in range(3)]
        parts(tmp_path, third, 2 * third, names=names, packets_of=own)

    assert rows(tmp_path, "exchanges") == rows(SAMPLE, "exchanges")


def test_one_says_that_all_inputs_are_one_recording(tmp_path):
    """Also those of other folders, in order of time."""
    parts(tmp_path, 100, names=["b/x.pcap", "a/y.pcap"])

    ran = run("export", str(tmp_path), "--one", "--out", str(tmp_path / "out"))

    assert "1 capture (2 files)" in ran.stderr
    assert rows(tmp_path, "exchanges", one=True) == rows(SAMPLE, "exchanges")


def test_one_notes_files_that_overlap_in_time(tmp_path):
    parts(tmp_path, names=["a.pcap"])
    parts(tmp_path / "b", names=["whole.pcap"])

    ran = run("stats", "--one", str(tmp_path))

    assert "mergecap puts their packets in order" in ran.stderr


def test_one_is_true_or_false():
    with pytest.raises(TypeError, match="one is True or False"):
        mqpcap.read(str(SAMPLE), one=1)


def test_a_lake_continues_a_recording_in_a_file_of_another_name(tmp_path):
    parts(tmp_path / "in", 150, names=["morning.pcap", "noon.pcap"])
    for name in ("morning.pcap", "noon.pcap"):
        add(tmp_path / "lake", age(tmp_path / "in" / name))
    add(tmp_path / "lake", finish=True)
    add(tmp_path / "whole", age(tmp_path / "in/morning.pcap"), age(tmp_path / "in/noon.pcap"), finish=True)

    assert rows_of_lake(tmp_path / "lake") == rows_of_lake(tmp_path / "whole")


def test_large_files_are_looked_at_from_both_ends(tmp_path, monkeypatch):
    """The begin and the end of each are enough: bytes between are as many as one likes."""
    monkeypatch.setattr("mqpcap.continued_files.END_BYTES", 4096)
    parts(tmp_path, 190)

    assert found(tmp_path)[0] == [["morning.pcap", "noon.pcap"]]


def test_the_latest_of_many_files_is_continued(tmp_path, monkeypatch):
    """The busiest connection, a few of its packets in each file: each continues the file before it."""
    monkeypatch.setattr("mqpcap.continued_files.MAX_CANDIDATES", 1)
    ports = Counter(sum(x.ports) for x in PACKETS).most_common(1)[0][0]
    own = [x for x in PACKETS if sum(x.ports) == ports]
    names = [f"{chr(97 + k)}.pcap" for k in range(len(own) // 8)]
    parts(tmp_path, *range(8, 8 * len(names), 8), names=names, packets_of=own)

    assert found(tmp_path)[0] == [names]


def test_a_capture_that_goes_away_is_not_linked(tmp_path):
    parts(tmp_path, 150, names=["morning.pcap", "noon.pcap"])
    (tmp_path / "noon.pcap").write_bytes(HEAD)

    assert found(tmp_path) == ([["morning.pcap"], ["noon.pcap"]], [])
    with pytest.raises(CaptureError):
        mqpcap.read(str(tmp_path / "gone.pcap"))
