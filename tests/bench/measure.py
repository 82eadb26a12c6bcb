"""Ratios of whole processes: ``python tests/bench/measure.py [--messages N] [--runs N] [--only PART ...]``.

Not a test: run it by hand on a machine that does nothing else. Contenders of a part run interleaved, A B A B, and the
median of the runs counts: wall time for a user, CPU seconds (user + system) where the machine is shared. A ratio is a
contender against the first of its part, per message (or MB) where they read different numbers of them. Captures are
made below --folder (a temporary one unless named) and are as large as the options say; an export that loses a message
or finds a flaw in them ends the run.

bulk       small BlipMQ publishes: export, the floor (read the file, write the same tables), tshark with a Lua
           dissector, tshark's own MQTT dissector on the same publishes as MQTT, Scapy, pcaptoparquet (a row a packet)
counting   the same publishes counted by topic: stats, and tshark with a Lua dissector
protocols  bulk traffic of each protocol against that of BlipMQ
mqtt       the publishes as MQTT: export, that of BlipMQ, tshark's own dissector
sessions   a captured session of each protocol over and over: mostly connections
shapes     a connection a message, one connection, messages of 15 MB
memory     the peak of the same traffic at two sizes
threads    --jobs 2 against --jobs 1, on four captures and on one
start      --help against importing click and rich, show of a thousand messages against tshark
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
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
MQPCAP = (sys.executable, "-c", "from mqpcap.cli import main; main()")
OPPONENT = (sys.executable, str(HERE / "opponents.py"))
LUA = ("-X", f"lua_script:{HERE / 'blipmq.lua'}")
LUA_COLUMNS = tuple(f"blipmqbench.{name}" for name in ("type", "id", "qos", "topic", "body"))
MQTT_COLUMNS = ("mqtt.msgtype", "mqtt.msgid", "mqtt.qos", "mqtt.topic", "mqtt.msg")
PCAPS = HERE.parents[1] / "pcaps"
SESSIONS = {
    "flymq": "flymq/fetch.pcap", "fq": "fq/session.pcap", "msgq": "msgq/split_session.pcap",
    "kokaq": "kokaq/go1_session.pcap",
}  # fmt: skip
BULK = {
    "blipmq": "publishes", "flymq": "flymq_fetches", "fq": "fq_messages", "msgq": "msgq_typed", "kokaq": "kokaq_pushes",
}  # fmt: skip
PUBLISHES_PER_MEGABYTE = 7000


@dataclass(frozen=True, slots=True)
class Contender:
    """A command, how many messages (or MB) it reads, and the folder it writes."""

    command: Sequence[str]
    amount: float = 1
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def cost(contender: Contender) -> Cost:
    """Run a command to its end; raises if it fails."""
    if contender.out is not None:
        shutil.rmtree(contender.out, ignore_errors=True)
    began = time.perf_counter()
    with subprocess.Popen(contender.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{contender.command} ended with {process.returncode}: {said.decode()[-2000:]}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def compare(contenders: Mapping[str, Contender], runs: int, unit: str = "messages") -> list[Cost]:
    """Run all in turns, print the median cost of each and its ratio to the first; returns the medians."""
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, contender in contenders.items():
            costs[name].append(cost(contender))
    found = []
    for name, some in costs.items():
        what = Cost(*(statistics.median(getattr(c, x) for c in some) for x in Cost.__slots__))
        found.append(what)
        line = f"{name:<30} wall {what.wall_s:8.2f} s  cpu {what.cpu_s:8.2f} s  peak {what.peak_mb:6.0f} MB"
        amount, first = contenders[name].amount, next(iter(contenders.values())).amount
        if amount != 1:
            line += f"  {amount:11,.0f} {unit} {amount / what.cpu_s:9,.0f} per cpu s"
        if len(found) > 1:
            wall, cpu = what.wall_s / found[0].wall_s, what.cpu_s / found[0].cpu_s
            line += f"  wall {wall * first / amount:7.2f} x  cpu {cpu * first / amount:7.2f} x"
        print(line, flush=True)
    return found


@cache
def made_capture(folder: Path, maker: str, *numbers: int) -> tuple[Path, int]:
    """A capture and its messages; by a process of its own, for what this one holds would count as their peak."""
    path = folder / f"{maker}-{'-'.join(map(str, numbers))}.pcap"
    command = (sys.executable, str(HERE / "traffic.py"), maker, str(path), *map(str, numbers))
    return path, int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def export(out: Path, *captures: tuple[Path, int], jobs: int = 1) -> Contender:
    """An export that was tried once: every message is in the tables, none with a flaw."""
    words = ("export", *(str(path) for path, _ in captures), "--out", str(out), "--jobs", str(jobs), "-q")
    contender = Contender((*MQPCAP, *words), sum(count for _, count in captures), out)
    cost(contender)
    subprocess.run((*OPPONENT, "check", str(out), str(contender.amount)), check=True)
    return contender


def tshark(capture: tuple[Path, int], layer: str, columns: Sequence[str], *options: str) -> Contender:
    """The columns of a layer's messages as text."""
    path, count = capture
    fields = [word for name in ("frame.time_epoch", *columns) for word in ("-e", name)]
    return Contender(("tshark", "-r", str(path), *options, "-Y", layer, "-T", "fields", *fields), count)


def is_on_path(command: str) -> bool:
    """Whether a program is on PATH; says so where it is not."""
    if shutil.which(command) is None:
        print(f"there is no {command}: left out")
    return shutil.which(command) is not None


def bulk(folder: Path, given: argparse.Namespace) -> None:
    """Export against the floor and all opponents; the slow ones read a part of the same traffic."""
    whole, tenth, hundredth = (made_capture(folder, "publishes", given.messages // n) for n in (1, 10, 100))
    arrow, floor, packets = folder / "arrow", folder / "floor", folder / "packets.parquet"
    contenders = {"export": export(folder / "out", whole)}
    subprocess.run((*OPPONENT, "prepare", folder / "out", arrow), check=True)
    contenders["floor"] = Contender((*OPPONENT, "floor", str(whole[0]), str(arrow), str(floor)), whole[1], floor)
    if is_on_path("tshark"):
        as_mqtt = made_capture(folder, "mqtt_publishes", given.messages // 10)
        contenders["tshark, Lua"] = tshark(tenth, "blipmqbench", LUA_COLUMNS, *LUA)
        contenders["tshark, MQTT"] = tshark(as_mqtt, "mqtt", MQTT_COLUMNS)
    contenders["Scapy"] = Contender((*OPPONENT, "scapy", str(hundredth[0])), hundredth[1])
    if is_on_path(given.pcaptoparquet):
        words = (given.pcaptoparquet, "-i", str(tenth[0]), "-o", str(packets))
        contenders["pcaptoparquet"] = Contender(words, tenth[1])
    compare(contenders, given.runs)


def counting(folder: Path, given: argparse.Namespace) -> None:
    """Publishes counted by topic against tshark with a Lua dissector, which reads a part of the same traffic."""
    whole, quarter = (made_capture(folder, "publishes", given.messages // n) for n in (1, 4))
    words = (*MQPCAP, "stats", "-q", str(whole[0]), "--by", "op,topic")
    contenders = {
        "stats, count and bytes": Contender((*words, "--metric", "count,bytes"), whole[1]),
        "stats, errors and latency, too": Contender(words, whole[1]),
    }
    if is_on_path("tshark"):
        contenders["tshark, Lua, -T fields"] = tshark(quarter, "blipmqbench", LUA_COLUMNS[::3], *LUA)
        counted = f"io,stat,1,blipmqbench,COUNT({LUA_COLUMNS[3]}){LUA_COLUMNS[3]}"
        contenders["tshark, Lua, -z io,stat"] = Contender(
            ("tshark", "-q", "-r", str(quarter[0]), *LUA, "-z", counted), quarter[1]
        )
    compare(contenders, given.runs)


def protocols(folder: Path, given: argparse.Namespace) -> None:
    """The same number of messages of every protocol."""
    captures = {name: made_capture(folder, maker, given.messages // 4) for name, maker in BULK.items()}
    compare({name: export(folder / f"out-{name}", x) for name, x in captures.items()}, given.runs)


def mqtt(folder: Path, given: argparse.Namespace) -> None:
    """The publishes as MQTT: the export against BlipMQ's, and against tshark's own dissector on the same capture."""
    blipmq, same = (made_capture(folder, maker, given.messages // 10) for maker in ("publishes", "mqtt_publishes"))
    contenders = {"export, MQTT": export(folder / "out-mqtt", same), "export, BlipMQ": export(folder / "out", blipmq)}
    if is_on_path("tshark"):
        contenders["tshark, MQTT"] = tshark(same, "mqtt", MQTT_COLUMNS)
    compare(contenders, given.runs)


def sessions(folder: Path, given: argparse.Namespace) -> None:
    """Captured sessions between ever new addresses."""
    contenders = {}
    for name, template in SESSIONS.items():
        capture, out = folder / f"{name}-sessions.pcap", folder / f"out-{name}"
        words = ("sessions", str(capture), str(PCAPS / template), str(given.megabytes << 18))
        subprocess.run((sys.executable, str(HERE / "traffic.py"), *words), check=True, stdout=subprocess.DEVNULL)
        words = ("export", str(capture), "--out", str(out), "--jobs", "1", "-q")
        contenders[name] = Contender((*MQPCAP, *words), capture.stat().st_size / 1e6, out)
    compare(contenders, given.runs, "MB")


def shapes(folder: Path, given: argparse.Namespace) -> None:
    """What is hard on state and windows, against the publishes of a handful of connections."""
    count = given.megabytes * PUBLISHES_PER_MEGABYTE
    captures = {
        "eight connections": made_capture(folder, "publishes", count),
        "one connection": made_capture(folder, "publishes", count, 1),
        f"{given.flows:,} connections": made_capture(folder, "short", given.flows),
        "messages of 15 MB": made_capture(folder, "large", max(given.megabytes // 15, 2), 15 << 20),
    }
    contenders = {}
    for name, capture in captures.items():
        tried = export(folder / f"out{len(contenders)}", capture)
        contenders[name] = Contender(tried.command, capture[0].stat().st_size / 1e6, tried.out)
    compare(contenders, given.runs, "MB")


def memory(folder: Path, given: argparse.Namespace) -> None:
    """Publishes of --megabytes and of --large megabytes."""
    sizes = {
        f"{n} MB": made_capture(folder, "publishes", n * PUBLISHES_PER_MEGABYTE) for n in (given.megabytes, given.large)
    }
    small, large = compare({name: export(folder / "out", x) for name, x in sizes.items()}, given.runs)
    print(f"peak of the large one: {large.peak_mb / small.peak_mb:.2f} x")


def threads(folder: Path, given: argparse.Namespace) -> None:
    """Two threads, and how much longer one takes."""
    count = given.large * PUBLISHES_PER_MEGABYTE
    # Their times overlap, so they are four captures and not one in parts.
    many = [made_capture(folder, "publishes", count // 4, flows) for flows in (5, 6, 7, 8)]
    for name, captures in (("four captures", many), ("one capture", [made_capture(folder, "publishes", count)])):
        compare({f"{name}, jobs {j}": export(folder / f"out{j}", *captures, jobs=j) for j in (2, 1)}, given.runs)


def start(folder: Path, given: argparse.Namespace) -> None:
    """What is there before the first message is."""
    capture, _ = made_capture(folder, "publishes", 1000)
    runs = max(given.runs, 7)
    ours = {"mqpcap --help": Contender((*MQPCAP, "--help"))}
    compare({"import click, rich": Contender((sys.executable, "-c", "import click, rich"))} | ours, runs)
    if is_on_path("tshark"):
        compare(
            {
                "tshark, 1,000 messages": Contender(("tshark", "-r", str(capture), *LUA)),
                "mqpcap show, 1,000 messages": Contender((*MQPCAP, "show", "-q", str(capture))),
                "import click, pyarrow.compute": Contender((sys.executable, "-c", "import click, pyarrow.compute")),
            },
            runs,
        )


PARTS = {x.__name__: x for x in (bulk, counting, protocols, mqtt, sessions, shapes, memory, threads, start)}


def main() -> None:
    """Every part, or what --only names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--large", type=int, default=1000, metavar="MEGABYTES")
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--pcaptoparquet", default="pcaptoparquet", help="where that program is")
    parser.add_argument("--only", action="append", choices=PARTS)
    given = parser.parse_args()
    # Modules are compiled to bytecode once, as an installed program's are.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="mqpcap-bench-", dir=given.folder) as folder:
        for name in given.only or PARTS:
            print(f"\n{name}: {PARTS[name].__doc__}", flush=True)
            PARTS[name](Path(folder), given)


if __name__ == "__main__":
    main()
