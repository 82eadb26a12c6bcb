"""First tries of users of tshark, tcpdump, kcat and jq: they work, or the error names the line that does."""

import pytest
import running
from running import ROOT, Ended

from mqpcap.cli.other_words import _COMMAND_BY_WORD, _OPTION_BY_WORD

SESSION, CORE, QOS1 = (str(ROOT / f"pcaps/{name}.pcap") for name in ("fq/session", "flymq/core", "blipmq/qos1"))


def run(*words: str) -> Ended:
    return running.run(*words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["topics", CORE], "there is no command topics: that is mqpcap stats INPUT --by topic"),
        (["list", "pcaps"], "there is no command list: that is mqpcap info INPUT"),
        (["-C", "-t", "orders", CORE], "there is no option -C: that is --topic NAME, with --raw-body for bodies alone"),
        (["show", SESSION, "--ip", "::1"], "there is no option --ip: that is --client IP:PORT or --server IP:PORT"),
        (["show", SESSION, "-t", "events"], "; topics are selected by --topic"),
        (["show", SESSION, "-f", "%t %p"], "--fields chooses their columns"),
        (["-r", SESSION, "-z", "expert"], "-z expert: that is mqpcap info INPUT"),
        (["-r", SESSION, "-Y", "tcp.analysis.flags"], "; stats --connections counts bytes that were sent again"),
        (["-r", SESSION, "-T", "fields", "-e", "frame.time_delta"], "counts from the line before"),
        (["stats", SESSION, "--limit", "3"], "there is no option --limit: that is --top N"),
        (["show", SESSION, "--limit", "3"], "there is no option --limit: that is -c N"),
        (["-i", "lo", "-b", "filesize:100"], "a ring of files is --ring NxSIZE of extract -i"),
        (["-i", "lo", "tcp", "port", "5555"], "-f 'tcp port 5555' captures only these packets"),
        (["show", SESSION, "-Y", "flymq.opcode == 1"], "did you mean op or op_code?"),
        (
            ["stats", SESSION, "--metric", "p90"],
            "'p90' is no metric; there are count, bytes, errors, latency, p50, p95, p99",
        ),
        (
            ["stats", SESSION, "--intervall", "1s"],
            "No such option --intervall; did you mean --interval? ",
        ),
        (["explain", SESSION, "-Q"], "mqpcap explain --help lists all"),
        (["-r", SESSION, "-T", "fields", "-e", "time"], "there is no column 'time'; did you mean ts?"),
        (["-r", SESSION, "-Y", "frame.time_delta_displayed > 1"], "--fields has it: it is of lines, which no filter"),
        (["-r", SESSION, "-Y", "kokaq.status == Fail"], "; names are in kokaq.status_name"),
    ],
)
def test_an_error_names_the_right_line(words: list[str], line: str) -> None:
    ended = run(*words)

    assert (ended.exit_code, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert line in ended.stderr


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        (["host", "127.0.0.1"], "no file host; -Y 'ip.addr == 10.0.0.1 and tcp.port == 9092' selects messages of"),
        (
            ["port 8765"],
            "no file port 8765; -Y 'ip.addr == 10.0.0.1 and tcp.port == 9092' selects messages of a capture",
        ),
        (["3"], "there is no file 3; -c 3 stops after 3 messages"),
    ],
)
def test_filters_and_counts_among_the_inputs_are_refused_before_the_first_row(extra: list[str], note: str) -> None:
    ended = run("-q", "-r", QOS1, "-n", *extra)

    assert (ended.exit_code, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert note in ended.stderr


def test_statistics_of_tshark_take_a_filter() -> None:
    """20 messages of clients and 26 of the server, as `show --op PUBLISH` counts."""
    rows = run("-r", QOS1, "-q", "-z", "io,stat,1,blipmq.op==PUBLISH", "--csv").stdout.splitlines()

    place = rows[0].split(",").index("messages")
    assert sum(int(row.split(",")[place]) for row in rows[1:]) == 46
    assert run("-r", QOS1, "-q", "-z", "blipmq,tree").stdout == run("stats", "-q", "--by", "protocol,op", QOS1).stdout


def test_every_hint_is_for_a_word_that_is_not_an_option() -> None:
    commands = run("--help").stdout.split("Commands:")[1]
    assert not {line.split()[0] for line in commands.splitlines() if line[:2] == "  "} & _COMMAND_BY_WORD.keys()
    shown = run("show", "--help").stdout.split()
    assert not {word for word in _OPTION_BY_WORD if word in shown and word not in ("-b", "-p", "-o", "-L", "-R", "-F")}
