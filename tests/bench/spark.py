"""What Spark costs over the local road: ``python tests/bench/spark.py [--messages N] [--only job,scan,memory,batch]``.

Not a test: run it by hand. Ratios, of CPU seconds (user + system) of whole process trees: the JVM, Spark's Python
daemon and its workers, sampled while they live. What a session costs that does nothing (the JVM's start, its first job
through Python workers) and a first job or scan of the same kind are measured in the same process before the work begins
and told apart: ``startup`` says it.

job     ``mqpcap spark export`` of one large capture with one slot and with two, against ``mqpcap export --jobs 1``
scan    a full read of ``format("mqpcap")`` against the same rows read from Parquet plus the local dissection
memory  the peak of a Python worker where one connection holds half of a capture
batch   the commands, from their start to their end, on a sample, on 79 files of 48 MB in all, and on publishes and
        sessions of ``--sizes``: locally, on ``local[2]``, and on a cluster of two workers on loopback, whose processes
        count as well
"""

import argparse
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import traffic  # noqa: E402

SAMPLE_S = 0.5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MQPCAP = (sys.executable, "-c", "from mqpcap.cli import main; main()")


@dataclass
class Tree:
    """CPU seconds and peak memory of a process and all that it starts, sampled: what a process did after its last
    sample is missed, at most SAMPLE_S of each."""

    root: int
    cpu: dict[int, float] = field(default_factory=dict)
    peak_mb: dict[int, float] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)

    def sample(self) -> float:
        """CPU seconds by now."""
        parents: dict[int, int] = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    stat = (path / "stat").read_text().rpartition(")")[2].split()
                    parents[int(path.name)] = int(stat[1])
                    pid = int(path.name)
                    if pid == self.root or self._is_ours(pid, parents):
                        status, words = (path / "status").read_text(), (path / "cmdline").read_text()
                        # One that has ended and was not asked for yet has neither.
                        peak_mb = float(status.split("VmHWM:")[1].split()[0]) / 1024
                        self.words[pid], self.peak_mb[pid] = words.replace("\0", " ") or self.words[pid], peak_mb
                        self.cpu[pid] = (int(stat[11]) + int(stat[12])) * TICK_S
                except (OSError, IndexError, KeyError):
                    continue
        return sum(list(self.cpu.values()))

    def _is_ours(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == self.root or pid in self.cpu:
                return True
        return False

    def by_kind(self) -> dict[str, float]:
        """CPU seconds of the driver, the JVM and Spark's Python processes, without who has ended unseen."""
        kinds = {"driver": 0.0, "java": 0.0, "workers": 0.0}
        for pid, seconds in list(self.cpu.items()):
            words = self.words[pid]
            kind = "workers" if "pyspark" in words.split("-m")[-1] and "java" not in words else "driver"
            kinds["java" if "java" in words else kind] += seconds
        return kinds

    @property
    def worker_peak_mb(self) -> float:
        """The largest Python worker of Spark."""
        return max((mb for pid, mb in list(self.peak_mb.items()) if "spark.daemon" in self.words[pid]), default=0.0)


@dataclass(frozen=True)
class Mark:
    """Where a child stood: the wall clock and the CPU seconds of its tree, in all and by kind of process; and those of
    all that ran on the machine."""

    wall_s: float
    cpu_s: float
    kinds: dict[str, float]
    machine_s: float

    @property
    def others_s(self) -> float:
        """CPU seconds of other processes: where they are not few, the wall clock says little."""
        return max(0.0, self.machine_s - self.cpu_s)


def busy_s() -> float:
    """CPU seconds of the whole machine, and what its host took away."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(rest)) * TICK_S


class Child:
    """This file as a child, and its tree. It tells marks; ``again`` lets it go on to the next one."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", *arguments], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._began = time.perf_counter()
        self.tree = Tree(self._process.pid)
        self.tree.sample()
        self._stop = threading.Event()
        self._said: list[str] = []
        assert self._process.stderr is not None
        threads = (self._sample, lambda: self._said.extend(self._process.stderr))  # type: ignore[arg-type]
        self._threads = [threading.Thread(target=target, daemon=True) for target in threads]
        for thread in self._threads:
            thread.start()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.tree.sample()

    def marks(self) -> Iterator[tuple[str, "Mark"]]:
        """The marks as they are told."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("mark "):
                now_s = time.perf_counter() - self._began
                yield line.split()[1], Mark(now_s, self.tree.sample(), self.tree.by_kind(), busy_s())

    def again(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Tell it that it will not be told to go on."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """Wait for its end."""
        self.close()
        self._process.wait()
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._process.returncode:
            words = "".join(self._said)[-3000:]
            raise RuntimeError(f"{self._arguments} ended with {self._process.returncode}: {words}")


def watched(*arguments: str) -> tuple[dict[str, Mark], Tree]:
    """Run a child to its end; the marks it told, and its tree."""
    child = Child(*arguments)
    child.close()
    marks = dict(child.marks())
    child.end()
    return marks, child.tree


def between(marks: dict[str, Mark], one: str, two: str) -> Mark:
    """From one mark to the other."""
    a, b = marks[one], marks[two]
    kinds = {kind: b.kinds[kind] - a.kinds[kind] for kind in b.kinds}
    return Mark(b.wall_s - a.wall_s, b.cpu_s - a.cpu_s, kinds, b.machine_s - a.machine_s)


# What the children do


def mark(word: str) -> None:
    print(f"mark {word}", flush=True)


def session(slots: str) -> Any:
    """A session that has run a job through its Python workers."""
    from mqpcap.spark.session import session as made

    spark = made(f"local[{slots}]", {"spark.driver.memory": "2g"})
    for _ in range(2):
        spark.range(0, 8, 1, 8).mapInArrow(lambda batches: batches, "id bigint").collect()
    return spark


def child_job(slots: str, capture: str, out: str) -> None:
    from mqpcap.capture import captures
    from mqpcap.pipeline import Options
    from mqpcap.spark import job
    from mqpcap.spark.share import TASK_MEMORY_BYTES

    spark = session(slots)
    shares = os.environ.get("BENCH_SHARES")

    def export() -> None:
        job.export(
            spark, captures([capture]).captures, out, Options(max_memory_bytes=TASK_MEMORY_BYTES),
            share_count=int(shares) if shares else None,
        )  # fmt: skip

    export()  # does not count: now the JVM has compiled what hands out tasks
    mark("started")
    for _ in sys.stdin:
        mark("ready")
        export()
        mark("done")


def child_local(capture: str, out: str) -> None:
    mark("ready")
    subprocess.run([*MQPCAP, "export", "--jobs", "1", "-q", capture, "--out", out], check=True)
    mark("done")


def child_dissect(capture: str, table: str) -> None:
    from dissection import dissect

    from mqpcap.capture import captures

    made: Callable[..., Any] = dissect
    mark("ready")
    for one in captures([capture]).captures:
        assert made(one).chunks
    mark("done")


def child_scan(capture: str, tables: str, table: str) -> None:
    spark = session("1")
    rows = spark.read.parquet(f"{tables}/{table}").drop("date")
    for _ in range(2):
        rows.write.format("noop").mode("overwrite").save()
    mark("parquet")
    for _ in range(4):
        rows.write.format("noop").mode("overwrite").save()
    mark("ready")
    found = spark.read.format("mqpcap").option("table", table).load(capture)
    found.write.format("noop").mode("overwrite").save()  # Parquet was read twice before it counted, too
    mark("scan")
    found.write.format("noop").mode("overwrite").save()
    mark("done")


# What is told


def spread(path: Path, server_count: int) -> None:
    """The connections of ``traffic.publishes`` among so many servers."""
    data = bytearray(path.read_bytes())
    at = 24
    while at < len(data):
        ip = at + 30
        ports = struct.unpack_from(">HH", data, ip + 20)
        to_server = ports[1] < 20_000
        data[ip + (19 if to_server else 15)] = 1 + max(ports) % server_count
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    path.write_bytes(data)


def tell(name: str, what: Mark, extra: str = "") -> None:
    kinds = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in what.kinds.items() if seconds > 0.01)
    print(f"{name:<38} wall {what.wall_s:7.2f} s  cpu {what.cpu_s:7.2f} s ({kinds})  {extra}", flush=True)


def job(capture: Path, folder: Path, message_count: int, runs: int) -> None:
    local: list[Mark] = []
    by_slots: dict[int, list[Mark]] = {1: [], 2: []}
    children = {slots: Child("job", str(slots), str(capture), str(folder / f"slots{slots}")) for slots in by_slots}
    marks = {slots: child.marks() for slots, child in children.items()}
    for slots in by_slots:
        tell(f"  startup, {slots} slots", next(marks[slots])[1])
    for _ in range(runs):
        told, _ = watched("local", str(capture), str(folder / "local"))
        local.append(between(told, "ready", "done"))
        for slots, child in children.items():
            child.again()
            done = between(dict(islice(marks[slots], 2)), "ready", "done")
            by_slots[slots].append(done)
            tell(f"  spark export, {slots} slots", done, f"others {done.others_s:.1f} s")
    for slots, child in children.items():
        child.end()
        print(f"largest worker, {slots} slots: {child.tree.worker_peak_mb:.0f} MB")
    best = min(one.cpu_s for one in local)
    tell("mqpcap export --jobs 1", min(local, key=lambda m: m.cpu_s), f"{best / message_count * 1e6:.2f} us a message")
    for slots, marks_ in by_slots.items():
        cpu = min(one.cpu_s for one in marks_)
        print(f"cpu of spark export / local, {slots} slots: {cpu / best:.2f}")
    pairs = [one.wall_s / two.wall_s for one, two in zip(by_slots[1], by_slots[2], strict=True)]
    walls = [statistics.median(mark.wall_s for mark in marks_) for marks_ in by_slots.values()]
    print(
        f"wall of one slot / two: {walls[0] / walls[1]:.2f} (medians {walls[0]:.2f} and {walls[1]:.2f} s; pairs "
        f"{', '.join(f'{pair:.2f}' for pair in pairs)})",
        flush=True,
    )


def scan(capture: Path, folder: Path, message_count: int) -> None:
    if not (folder / "local").exists():
        watched("local", str(capture), str(folder / "local"))
    for table in ("messages", "blipmq"):
        marks, _ = watched("dissect", str(capture), table)
        alone = between(marks, "ready", "done")
        marks, tree = watched("scan", str(capture), str(folder / "local"), table)
        parquet = between(marks, "parquet", "ready").cpu_s / 4
        scanned = between(marks, "scan", "done")
        tell(f"local dissection, {table}", alone)
        tell(f"format(mqpcap), {table}", scanned, f"Parquet {parquet:.2f} s  worker {tree.worker_peak_mb:.0f} MB")
        print(f"scan / (Parquet + dissection), {table}: {scanned.cpu_s / (parquet + alone.cpu_s):.2f}")


def memory(folder: Path, megabytes: int, body_bytes: int) -> None:
    """One connection with half of the bytes; the other half in 15."""
    path = folder / "half.pcap"
    half(path, megabytes << 20, body_bytes)
    _, tree = watched("job", "2", str(path), str(folder / "half"))
    print(
        f"largest Python worker with {path.stat().st_size >> 20} MB: {tree.worker_peak_mb:.0f} MB, bodies of about "
        f"{body_bytes} bytes"
    )
    path.unlink()


def half(path: Path, size_bytes: int, body_bytes: int) -> None:
    """Publishes to one server, every second packet on connection 0, the others on 15 more."""
    capture = traffic._Capture(path)
    for flow in range(16):
        traffic._log_in(capture, flow)
    body, waiting, number, sent = bytes(range(48, 112)) * 64, [b""] * 16, 0, 0
    while sent < size_bytes:
        for flow in (0, 1 + number // 16 % 15):
            while len(waiting[flow]) < traffic.SEGMENT_BYTES:
                number += 1
                size = body_bytes // 2 + number % body_bytes
                waiting[flow] += traffic._publish(number + 3, body[number % 64 : number % 64 + size])
            capture.packet(flow, True, waiting[flow][: traffic.SEGMENT_BYTES], traffic.PUSH_ACK)
            waiting[flow] = waiting[flow][traffic.SEGMENT_BYTES :]
            sent += traffic.SEGMENT_BYTES + 70
    capture.end()


# Whole commands


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core; they end with the block."""
    import pyspark

    from mqpcap.spark.session import environment

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    url, host, started = f"spark://127.0.0.1:{port}", ("--host", "127.0.0.1", "--webui-port", "0"), []
    settings = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    worker = ("worker.Worker", url, "--cores", "1", "--memory", "1g")
    processes = [("master.Master", "--port", port), *((*worker, "--work-dir", str(folder / f"w{k}")) for k in range(2))]
    try:
        for number, (name, *words) in enumerate(processes):
            log = folder / f"process{number}.log"
            program = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            with log.open("wb") as file:
                started.append(
                    subprocess.Popen([*program, *words, *host], stdout=file, stderr=file, cwd=folder,
                                     env={**os.environ, **settings, **environment()})
                )  # fmt: skip
            until_s = time.monotonic() + 300
            while not any(told in log.read_text() for told in ("elected leader", "Successfully registered")):
                if time.monotonic() > until_s:
                    raise RuntimeError(log.read_text()[-3000:])
                time.sleep(0.1)
        yield url
    finally:
        for process in started[::-1]:  # a worker ends its executors
            process.terminate()
            process.wait()


def commanded(words: list[str]) -> tuple[float, float, float]:
    """CPU seconds of a command and of all that this process has started; wall seconds; memory of the largest in MB."""
    tree, stop = Tree(os.getpid()), threading.Event()
    ours_s, before_s, began_s = time.process_time(), tree.sample(), time.perf_counter()
    earlier, environment = {*tree.cpu}, {**os.environ, "PYSPARK_PYTHON": sys.executable}

    def sample() -> None:
        while not stop.wait(SAMPLE_S / 2):
            tree.sample()

    thread = threading.Thread(target=sample)
    thread.start()
    done = subprocess.run(
        [*MQPCAP, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall_s = time.perf_counter() - began_s
    stop.set()
    thread.join()
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-3000:]}")
    cpu_s = tree.sample() - before_s - (time.process_time() - ours_s)
    return cpu_s, wall_s, max(mb for pid, mb in tree.peak_mb.items() if pid not in earlier)


def batch(folder: Path, sizes_mb: list[int]) -> None:
    sample = HERE.parents[1] / "pcaps" / "blipmq" / "qos1.pcap"
    print(f"{'capture':<24} {'road':<10} {'cpu s':>8} {'wall s':>8} {'MB':>6}  beyond the start / local")
    with cluster(folder) as url:
        masters = {"local[2]": "local[2]", "cluster": url}
        starts_s: dict[str, float] = {}
        large = [(name, mb) for mb in sizes_mb for name in ("publishes", "sessions")]
        for name, size_mb in [("sample", 0), ("79 files", 48), *large]:
            capture = sample if name == "sample" else folder / f"{name}.pcap"
            size_bytes = size_mb << 20
            if name == "publishes":
                traffic.publishes(capture, size_mb * 7_270, 16)
                spread(capture, 4)
            elif name == "sessions":
                traffic.sessions(capture, sample, size_bytes)
            elif name == "79 files":
                capture.mkdir()
                for number in range(79):
                    letters = f"{chr(97 + number // 26)}{chr(97 + number % 26)}"  # no counter: a recording each
                    traffic.sessions(capture / f"{letters}.pcap", sample, size_bytes // 79)
            for road in ("local", *masters):
                words = ["export", "--jobs", "1"] if road == "local" else ["spark", "export", "--master", masters[road]]
                cpu_s, wall_s, mb = commanded([*words, "-q", str(capture), "--out", str(folder / "tables")])
                start_s = starts_s.setdefault(road, cpu_s)
                if road == "local":
                    local_s = cpu_s
                ratio = f"{(cpu_s - start_s) / (local_s - starts_s['local']):.2f}" if cpu_s > start_s else ""
                shown = f"{name}, {(size_bytes or capture.stat().st_size) / 1e6:,.1f} MB"
                print(f"{shown:<24} {road:<10} {cpu_s:8.2f} {wall_s:8.1f} {mb:6.0f}  {ratio}", flush=True)
            if name in ("publishes", "sessions"):
                capture.unlink()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        globals()[f"child_{sys.argv[2]}"](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--servers", type=int, default=4, help="among which the connections are spread")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=2048, help="of the capture that measures memory")
    parser.add_argument("--body", type=int, default=1000, help="bytes of a body there, about")
    parser.add_argument("--sizes", default="192,600", help="of the captures of batch, in MB")
    parser.add_argument("--only", default="job,scan,memory,batch")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mqpcap-bench-"))
    try:
        capture = folder / "publishes.pcap"
        wanted = chosen.only.split(",")
        if {"job", "scan"} & {*wanted}:
            traffic.publishes(capture, chosen.messages, chosen.connections)
            spread(capture, chosen.servers)
            print(f"{capture.stat().st_size / 1e6:.0f} MB, {chosen.messages:,} messages, {chosen.servers} servers")
        if "job" in wanted:
            job(capture, folder, chosen.messages, chosen.runs)
        if "scan" in wanted:
            scan(capture, folder, chosen.messages)
        if "memory" in wanted:
            memory(folder, chosen.megabytes, chosen.body)
        if "batch" in wanted:
            batch(folder, [int(size) for size in chosen.sizes.split(",") if size])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
