"""What a lake costs as it grows, and whether its rows are those of the whole: ``python tests/bench/lake.py``.

Not a test: run it by hand. CPU seconds (user + system) of whole commands, with their start.

growing  ``mqpcap export FOLDER --append LAKE`` for the 10th, 100th and 500th file of 1 MB (``--files``); each session
         lasts four files. All other files are added one by one in this process.
trials   five files of a sample, whatever happens to them on the way: rows of each table against those of one export
"""

import argparse
import gzip
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import duckdb  # noqa: E402
import traffic  # noqa: E402
from rows import rotated  # noqa: E402

import mqpcap  # noqa: E402
from mqpcap import queries  # noqa: E402

MQPCAP = (sys.executable, "-c", "from mqpcap.cli import main; main()")
FILE_BYTES = 1_000_000
LIVE_SESSIONS = 4
TABLES = ("messages", "exchanges", "deliveries", "connections")
KILLS = 10


def command(*words: object) -> tuple[float, str]:
    """CPU seconds of a command, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*MQPCAP, *map(str, words)], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1 or "Traceback" in done.stderr:
        raise RuntimeError(f"{words}: {done.stderr[-3000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """By table: the number of rows, and a sum over them that any other row changes."""
    con = duckdb.connect()
    queries.tables(con, folder)
    names = {name for (name,) in con.sql("SELECT table_name FROM information_schema.tables").fetchall()}
    rows = {}
    for name in TABLES:
        query = f"SELECT COUNT(*), SUM(hash(t)::HUGEINT) FROM {name} t"
        count, total = con.sql(query).fetchall()[0] if name in names else (0, 0)
        rows[name] = int(count), int(total or 0)
    return rows


def shown(rows: dict[str, tuple[int, int]], whole: dict[str, tuple[int, int]]) -> str:
    return "  ".join(f"{name} {rows[name][0]:,}{'' if rows[name] == whole[name] else ' DIFFER'}" for name in TABLES)


def aged(path: Path) -> Path:
    """The file, as if nobody had written to it for an hour."""
    os.utime(path, (time.time() - 3600,) * 2)
    return path


# A lake that grows


def recording(folder: Path, count: int) -> Iterator[Path]:
    """The files of a rotating capture; in each a session begins, and the one that began three files before ends."""
    capture, offset = traffic._Capture(folder / "broker.pcap", port=9092), 0
    for number in range(count):
        path = folder / f"broker.pcap{number or ''}"
        if number:
            capture.file.close()
            capture.file = path.open("wb", buffering=1 << 20)
            capture.file.write(traffic.HEADER)
        capture.open(number)
        live = range(max(0, number - LIVE_SESSIONS + 1), number + 1)
        while capture.file.tell() < FILE_BYTES:
            for session in live:
                records = [traffic._record(offset + n) for n in range(3)]
                asked = traffic._short16(b"orders.%d" % (offset % 40)) + struct.pack(
                    ">iQiH", session % 4, offset, 10, 0
                )
                offset += len(records)
                capture.say(session, True, traffic._flymq(7, asked))
                reply = struct.pack(">IQ", len(records), offset) + b"".join(records)
                capture.say(session, False, traffic._flymq(7, reply))
        if len(live) == LIVE_SESSIONS:
            capture.close(live[0])
        capture.file.flush()
        yield path
    capture.file.close()


def growing(folder: Path, steps: list[int]) -> None:
    made, captures, lake = folder / "made", folder / "captures", folder / "lake"
    made.mkdir()
    captures.mkdir()
    for number, path in enumerate([*recording(made, max(steps))], 1):
        aged(path).rename(captures / path.name)
        if number not in steps:
            mqpcap.export([captures], append=lake)
            continue
        cpu_s, _ = command("export", captures, "--append", lake, "-q")
        state = max((lake / "_mqpcap").glob("*.state"), key=lambda path: path.stat().st_mtime)
        print(f"{number:5} files: {cpu_s:.2f} CPU s, state {state.stat().st_size / 1e6:.1f} MB", flush=True)
    command("export", "--append", lake, "--finish", "-q")
    command("export", captures, "--out", folder / "whole", "-q")
    print("rows:", shown(contents(lake), contents(folder / "whole")), flush=True)


# What may happen to files


def one_by_one(files: list[Path], lake: Path) -> None:
    for path in files:
        command("export", path, "--append", lake)


def together(files: list[Path], lake: Path) -> None:
    command("export", files[0].parent, "--append", lake)


def compressed(files: list[Path], lake: Path) -> None:
    """Each file is compressed after it was taken; the folder is named."""
    for path in files:
        command("export", path.parent, "--append", lake)
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        aged(packed)


def touched(files: list[Path], lake: Path) -> None:
    one_by_one(files[:3], lake)
    for path in files[:3]:
        os.utime(path, (time.time() - 600,) * 2)
    one_by_one([*files[:3], *files], lake)


def reordered(files: list[Path], lake: Path) -> None:
    """The files come in another order; a late one is refused until ``--rebuild``."""
    one_by_one([files[1], files[0], *files[2:]], lake)
    command("export", files[0].parent, "--append", lake, "--rebuild")


def late(files: list[Path], lake: Path) -> None:
    one_by_one([path for path in files if path != files[2]], lake)
    command("export", files[2], "--append", lake, "--rebuild")


def half_written(files: list[Path], lake: Path) -> None:
    """The newest file is looked at while it is written: it is left for the next run."""
    one_by_one(files[:4], lake)
    content = files[4].read_bytes()
    files[4].write_bytes(content[: len(content) // 2])
    command("export", files[4], "--append", lake)
    files[4].write_bytes(content)
    command("export", aged(files[4]), "--append", lake)


def killed(files: list[Path], lake: Path) -> None:
    """Runs are killed at random moments."""
    moments = random.Random(32)
    for k in range(KILLS):
        words = [*MQPCAP, "export", *map(str, files[: 1 + k // 2]), "--append", str(lake), "-q"]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.2, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    together(files, lake)


TRIALS: tuple[Callable[[list[Path], Path], None], ...] = (
    together, one_by_one, compressed, touched, reordered, late, half_written, killed,
)  # fmt: skip


def trials(folder: Path) -> None:
    sample = HERE.parents[1] / "pcaps" / "blipmq" / "qos1.pcap"
    whole = folder / "one_export"
    command("export", sample, "--out", whole)
    names = [path.relative_to(folder) for path in rotated(sample, folder, 5)]
    for name in names:
        command("export", folder / name, "--out", folder / "alone" / name)
    alone = [contents(folder / "alone" / name) for name in names]
    print("one export of all:   ", shown(contents(whole), contents(whole)))
    print("union of single ones:", "  ".join(f"{name} {sum(x[name][0] for x in alone):,}" for name in TABLES))
    for trial in TRIALS:
        captures, lake = folder / trial.__name__ / "captures", folder / trial.__name__ / "lake"
        captures.mkdir(parents=True)
        files = [aged(Path(shutil.copy(folder / name, captures))) for name in names]
        command("export", captures, "--out", captures.parent / "whole", "-q")
        trial(files, lake)
        command("export", "--append", lake, "--finish", "-q")
        print(f"{trial.__name__ + ':':<21}", shown(contents(lake), contents(captures.parent / "whole")), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="10,100,500", help="numbers of the files whose runs are measured")
    parser.add_argument("--only", default="trials,growing")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mqpcap-bench-"))
    try:
        if "trials" in chosen.only:
            trials(folder)
        if "growing" in chosen.only:
            growing(folder, [*map(int, chosen.files.split(","))])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
