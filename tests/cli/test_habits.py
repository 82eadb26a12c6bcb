"""48 tasks of people who know tshark, tcpdump, kcat and jq, as they write them for a shell.

Expected outputs come from the truth file (what the client sent and read), from tshark and capinfos (packets, times,
conversations) and from arithmetic. White space is not compared.
"""

import json
import os
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import command_server
import pytest
from running import ROOT, environment

TRUTH = json.loads((ROOT / "tests/truth/blipmq/qos1.truth.json").read_text())
EVENTS = [event for connection in TRUTH["connections"] for event in connection["events"]]
MESSAGES = sum(count for side in TRUTH["counts"].values() for count in side.values())
OPERATIONS = Counter(event["type_name"] for event in EVENTS)
FIRST_CONNECTION = len(TRUTH["connections"][0]["events"])
BODY_BYTES = sum(event["fields"].get("body_len", 0) for event in EVENTS if event["type_name"] == "PUBLISH")
COUNTED = " ".join(f"{count} {name}" for name, count in sorted(OPERATIONS.items()))

HABITS: dict[str, tuple[str, str]] = {
    # tshark
    "tshark -r": ("mqpcap -r $C | wc -l", f"{MESSAGES}"),
    "tshark -r -c": ("mqpcap show -r $C -c 5 | wc -l", "5"),
    "tshark -n -q": ("mqpcap show -n -q -r $C | wc -l", f"{MESSAGES}"),
    "tshark -T fields -e": ("mqpcap -r $C -c 1 -T fields -e frame.number -e ip.src -e blipmq.op", "4 127.0.0.1 HELLO"),
    "tshark -E header=y -E separator=,": (
        "mqpcap show $C -c 1 -T fields -e tcp.srcport -e op -E header=y -E separator=,", "tcp.srcport,op 39290,HELLO",
    ),
    "tshark -T json | jq": ("mqpcap -r $C -T json | jq -r .op | sort | uniq -c", COUNTED),
    "tshark -T ek": ("mqpcap -r $C -T ek | jq -r .first_packet | head -1", "4"),
    "tshark -Y tcp.port": ("mqpcap -r $C -Y 'tcp.port == 39290' | wc -l", f"{FIRST_CONNECTION}"),
    "tshark -Y tcp.stream eq": ("mqpcap -r $C -Y 'tcp.stream eq 0' | wc -l", f"{FIRST_CONNECTION}"),
    "tshark -Y ip.addr && protocol.field": (
        "mqpcap -r $C -Y 'ip.addr == 127.0.0.1 && blipmq.op == \"PUBLISH\"' | wc -l", f"{OPERATIONS['PUBLISH']}",
    ),
    "tshark -Y frame.number": ("mqpcap -r $C -Y 'frame.number == 12' -T fields -e payload", "first"),
    "tshark -Y protocol": ("mqpcap -r $C -Y blipmq | wc -l", f"{MESSAGES}"),
    "tshark -Y in {}": ("mqpcap -r $C -Y 'blipmq.op in {\"PING\", \"PONG\"}' | wc -l", "30"),
    "tshark -Y contains": ("mqpcap -r $C -Y 'blipmq.body contains \"arrives\"' | wc -l", "6"),
    "tshark -V": ("mqpcap -r $C -c 1 -V | grep protocol_version", "protocol_version: 1"),
    "tshark -x": ("mqpcap -r $C -c 1 -x | grep -o '0000  00 00 00 0b 01'", "0000 00 00 00 0b 01"),
    "tshark -z conv,tcp": ("mqpcap -q -r $C -z conv,tcp | grep 39432 | tr -s ' ' | cut -d' ' -f 8,9", "29 18"),
    "tshark -z endpoints,ip": ("mqpcap -q -r $C -z endpoints,ip | grep -c '127.0.0.1:5555 *15 '", "1"),
    "tshark -z io,stat": ("mqpcap stats $C -z io,stat,1 --json | jq -s 'map(.messages) | add'", f"{MESSAGES}"),
    "tshark -z io,phs": ("mqpcap stats $C -z io,phs | grep -o 'PING *15'", "PING 15"),
    "tshark -z rtt": ("mqpcap stats $C -z blipmq,rtt --op PING | grep -o 'PING *15'", "PING 15"),
    "tshark -z follow,tcp,ascii": ("mqpcap stats $C -z follow,tcp,ascii,0 2>&1 | grep -o 'mqpcap follow CAPTURE 0'",
                                   "mqpcap follow CAPTURE 0"),
    "tshark follow by stream": ("mqpcap follow $C 0 | head -1", "127.0.0.1:39290 -> 127.0.0.1:5555 blipmq"),
    "tshark -w": ("mqpcap -q -r $C -Y blipmq.op==PING -w $T/w.pcapng; mqpcap -r $T/w.pcapng --op PING | wc -l", "15"),
    "tshark -t r": ("mqpcap -r $C -t r -c 1 | tr -s ' ' | cut -d' ' -f 2", "0.000686"),
    "tshark -t ad": ("TZ=UTC mqpcap -r $C -t ad -c 1 | cut -c 1-26", "2026-11-21 05:24:09.419323"),
    "tshark -d": ("mqpcap -r $C -d tcp.port==5555,blipmq | wc -l", f"{MESSAGES}"),
    "tshark -G fields": ("mqpcap -G fields | grep -c '^  blipmq.topic '", "1"),
    "capinfos -c": ("mqpcap info --json $C | jq '.captures[0].files[0].packet_count'", "382"),
    "capinfos": ("mqpcap info -q $C | grep -o '^  verdict *whole'", "verdict whole"),
    "editcap -A": ("mqpcap extract -q $C --since +6s --out $T/a.pcapng; mqpcap -r $T/a.pcapng -t r -c 1 | wc -l", "1"),
    # tcpdump
    "tcpdump -nn -r -c": ("mqpcap -nn -r $C -c 3 | wc -l", "3"),
    "tcpdump -w - |": ("cat $C | mqpcap show -q - | wc -l", f"{MESSAGES}"),
    "tcpdump -r - of a compressed file": ("gzip -c $C | mqpcap -r - -q | wc -l", f"{MESSAGES}"),
    "tcpdump host and port": ("mqpcap -r $C --client 39290 --server :5555 | wc -l", f"{FIRST_CONNECTION}"),
    "tcpdump -A | grep": ("mqpcap -r $C -A | grep -c 'arrives 0'", "2"),
    "a reader that has enough": ("mqpcap -r $C 2>&1 | head -1 | cut -d' ' -f 3", "#4"),
    "| less -R": ("mqpcap -r $C -c 1 --color always | grep -c $'\\x1b'", "1"),
    # kcat
    "kcat -C -t": ("mqpcap show $C --op PUBLISH --topic q1 --raw-body", "first first"),
    "kcat -C -c 1 -J": ("mqpcap show $C --op PUBLISH -c 1 --json --body-encoding text | jq -r .body", "first"),
    "kcat -f '%p %o'": (
        "mqpcap show -q $F --op PRODUCE -Y is_reply -c 1 --fields flymq.partition,flymq.offset", "0 0",
    ),
    "kcat -L": ("mqpcap stats -q $C --producers | grep -o '^blipmq *patience.*3 '",
                "blipmq patience 127.0.0.1:39432 - 3"),
    "kcat lag of consumers": ("mqpcap stats -q $C --consumers | grep -c '^blipmq *patience'", "1"),
    # jq, grep, sort
    "jq select": ("mqpcap show --json $C | jq 'select(.op == \"PUBLISH\") | .body_len' | paste -sd+ | tr + '\\n' | "
                  "jq -s add", f"{BODY_BYTES}"),
    "jq group_by": ("mqpcap show --json $C | jq -s -r 'group_by(.op)[] | \"\\(length) \\(.[0].op)\"'", COUNTED),
    "csv | sort | uniq -c": ("mqpcap show $C --csv --fields op | tail -n +2 | sort | uniq -c", COUNTED),
    "grep -c": ("mqpcap show $C | grep -c ' NACK '", f"{OPERATIONS['NACK']}"),
    "grep -q": ("mqpcap show -e -q $C --op NACK > $T/x && ! mqpcap show -e -q $C --op NOPE; echo $?", "0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each line writes, white space squeezed."""
    folder = tmp_path_factory.mktemp("habits")
    program = command_server.program(tmp_path_factory.mktemp("bin"))
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    options = command_server.connected(
        environment(PATH=path, C="pcaps/blipmq/qos1.pcap", F="pcaps/flymq/core.pcap", T=str(folder))
    )

    def output(line: str) -> str:
        ended = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, **options)
        return " ".join(ended.stdout.split()) or ended.stderr

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(HABITS, pool.map(output, (line for line, _ in HABITS.values())), strict=True))


@pytest.mark.skipif(not shutil.which("jq") or not shutil.which("bash"), reason="needs bash and jq")
@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_works(habit: str, outputs: dict[str, str]) -> None:
    assert outputs[habit] == HABITS[habit][1]


def test_there_are_48_tasks() -> None:
    assert len(HABITS) == 48
