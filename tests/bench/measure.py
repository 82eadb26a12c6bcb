"""Ratios of whole processes: ``python tests/bench/measure.py [--messages N] [--runs N] [--only NAME]``.

Not a test: run it by hand on a machine that does nothing else. Contenders run interleaved, A B A B, and the median
of the runs counts; wall time for a user, CPU seconds (user + system) where the machine is shared. Captures are made
below --folder (a temporary one unless named) and are as large as --messages and --megabytes say.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import traffic  # noqa: E402

MQPCAP = (sys.executable, "-c", "from mqpcap.cli import main; main()")
OPPONENT = (sys.executable, str(HERE / "opponents.py"))
PCAPS = HERE.parents[1] / "pcaps"
SESSIONS = {
    "flymq": "flymq/fetch.pcap", "fq": "fq/session.pcap", "msgq": "msgq/split_session.pcap",
    "kokaq": "kokaq/go1_session.pcap",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def cost(command: Sequence[str], out: Path | None = None) -> Cost:
    """Run a command to its end; raises if it fails."""
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {said.decode()[-2000:]}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def medians(contenders: Mapping[str, tuple[Sequence[str], Path | None]], runs: int) -> dict[str, Cost]:
    """The median cost of each, run in turns."""
    found: dict[str, list[Cost]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, (command, out) in contenders.items():
            found[name].append(cost(command, out))
    return {
        name: Cost(*(statistics.median(getattr(c, x) for c in costs) for x in ("wall_s", "cpu_s", "peak_mb")))
        for name, costs in found.items()
    }


def export(out: Path, *inputs: Path, jobs: int = 1) -> tuple[Sequence[str], Path]:
    return (*MQPCAP, "export", *map(str, inputs), "--out", str(out), "--jobs", str(jobs), "-q"), out


def tell(name: str, what: Cost, extra: str = "") -> None:
    costs = f"wall {what.wall_s:8.2f} s  cpu {what.cpu_s:8.2f} s  peak {what.peak_mb:6.0f} MB"
    print(f"{name:<34} {costs}  {extra}", flush=True)


def row_count(out: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.ParquetFile(f).metadata.num_rows for f in (out / "messages").rglob("*.parquet"))


def against_floor(folder: Path, messages: int, runs: int) -> None:
    """Export, single thread, against reading the file and writing the tables."""
    capture, out, arrow = folder / "publishes.pcap", folder / "out", folder / "arrow"
    if not capture.exists():
        traffic.publishes(capture, messages)
    cost(*export(out, capture))
    subprocess.run((*OPPONENT, "prepare", out, arrow), check=True)
    found = medians(
        {
            "export": export(out, capture),
            "floor": ((*OPPONENT, "floor", str(capture), str(arrow), str(folder / "floor")), folder / "floor"),
        },
        runs,
    )  # fmt: skip
    ours, least = found["export"], found["floor"]
    tell("blipmq publishes: export", ours, f"{messages / ours.cpu_s:,.0f} messages per CPU second")
    ratios = f"export/floor wall {ours.wall_s / least.wall_s:.2f} cpu {ours.cpu_s / least.cpu_s:.2f}"
    tell("blipmq publishes: floor", least, ratios)


def against_others(folder: Path, messages: int, runs: int) -> None:
    """Export against tshark with Lua and Scapy frame by frame, on fewer messages, per message."""
    capture, few, out = folder / "tenth.pcap", folder / "few.pcap", folder / "out"
    count, few_count = max(messages // 10, 1000), max(messages // 100, 1000)
    traffic.publishes(capture, count)
    traffic.publishes(few, few_count)
    contenders = {"export": export(out, capture), "scapy": ((*OPPONENT, "scapy", str(few)), None)}
    if shutil.which("tshark"):
        fields = [x for f in ("type", "id", "qos", "topic", "body") for x in ("-e", f"blipmqbench.{f}")]
        contenders["tshark"] = (
            ("tshark", "-r", str(capture), "-X", f"lua_script:{HERE / 'blipmq.lua'}", "-Y", "blipmqbench",
             "-T", "fields", "-e", "frame.time_epoch", *fields), None,
        )  # fmt: skip
    found = medians(contenders, runs)
    for name, what in found.items():
        per = what.cpu_s / (few_count if name == "scapy" else count)
        ours = found["export"].cpu_s / count
        tell(f"blipmq publishes: {name}", what, f"{1e6 * per:8.2f} us per message; {per / ours:6.1f} x export (cpu)")


def protocols(folder: Path, megabytes: int, runs: int) -> None:
    """Messages per CPU second of every protocol's own traffic."""
    for name, template in SESSIONS.items():
        capture, out = folder / f"{name}.pcap", folder / "out"
        traffic.sessions(capture, PCAPS / template, megabytes << 20)
        what = medians({name: export(out, capture)}, runs)[name]
        tell(f"{name} sessions: export", what, f"{row_count(out) / what.cpu_s:,.0f} messages per CPU second")


def shapes(folder: Path, megabytes: int, runs: int) -> None:
    """Hard shapes: many short connections, large messages, the same traffic at two sizes."""
    makers = {
        "short connections": lambda p: traffic.short(p, megabytes * 1000),
        "messages of 15 MB": lambda p: traffic.large(p, max(megabytes // 15, 2), 15 << 20),
        "publishes, a tenth": lambda p: traffic.publishes(p, megabytes * 700),
        "publishes, whole": lambda p: traffic.publishes(p, megabytes * 7000),
    }
    for name, make in makers.items():
        capture, out = folder / "shape.pcap", folder / "out"
        make(capture)
        what = medians({name: export(out, capture)}, runs)[name]
        tell(f"{name}: export", what, f"{capture.stat().st_size / what.cpu_s / 1e6:,.0f} MB per CPU second")
        capture.unlink()


def threads(folder: Path, messages: int, runs: int) -> None:
    """--jobs 1 against --jobs 2, on four captures and on one."""
    many = []
    for k in range(4):
        place = folder / f"many{k}"
        place.mkdir(exist_ok=True)
        traffic.publishes(place / "x.pcap", messages // 4)
        many.append(place / "x.pcap")
    whole = folder / "publishes.pcap"
    if not whole.exists():
        traffic.publishes(whole, messages)
    for name, inputs in (("four captures", many), ("one capture", [whole])):
        found = medians({f"jobs {j}": export(folder / f"out{j}", *inputs, jobs=j) for j in (1, 2)}, runs)
        for job, what in found.items():
            tell(f"{name}: {job}", what, f"{found['jobs 1'].wall_s / what.wall_s:.2f} x jobs 1 (wall)")


def starting(folder: Path, messages: int, runs: int) -> None:
    """Start-up: help against importing click and rich; show of a thousand messages against tshark."""
    capture = folder / "thousand.pcap"
    traffic.publishes(capture, 1000)
    contenders: dict[str, tuple[Sequence[str], Path | None]] = {
        "help": ((*MQPCAP, "--help"), None),
        "click and rich": ((sys.executable, "-c", "import click, rich"), None),
        "show": ((*MQPCAP, "show", str(capture), "-q"), None),
    }
    if shutil.which("tshark"):
        contenders["tshark"] = ("tshark", "-r", str(capture), "-X", f"lua_script:{HERE / 'blipmq.lua'}"), None
    found = medians(contenders, max(runs, 3))
    ratio = found["help"].wall_s / found["click and rich"].wall_s
    tell("mqpcap --help", found["help"], f"{ratio:.2f} x import click, rich")
    extra = f"{found['show'].wall_s / found['tshark'].wall_s:.2f} x tshark" if "tshark" in found else ""
    tell("mqpcap show, 1,000 messages", found["show"], extra)


def main() -> None:
    """Everything, or what --only names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", action="append")
    given = parser.parse_args()
    parts = {
        "floor": lambda f: against_floor(f, given.messages, given.runs),
        "others": lambda f: against_others(f, given.messages, given.runs),
        "protocols": lambda f: protocols(f, given.megabytes, given.runs),
        "shapes": lambda f: shapes(f, given.megabytes, given.runs),
        "threads": lambda f: threads(f, given.messages, given.runs),
        "start": lambda f: starting(f, given.messages, given.runs),
    }
    with tempfile.TemporaryDirectory(prefix="mqpcap-bench-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.only or parts:
            parts[name](folder)


if __name__ == "__main__":
    main()
