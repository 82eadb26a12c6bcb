"""Command lines of tshark and tcpdump, as command lines of mqpcap."""

import click
import pytest

from mqpcap.cli import main
from mqpcap.cli.tshark_words import command_of, is_of_tshark, own_words


def words(command: str, line: str) -> list[str]:
    options = {name for param in main.commands[command].params for name in param.opts}
    return own_words(command, options, line.split())


@pytest.mark.parametrize(
    ("command", "line", "own"),
    [
        ("show", "-n -r a.pcap -c 5 -l", "a.pcap -c 5"),
        ("show", "-r a.pcap -T fields -e frame.number -e op", "a.pcap --fields frame.number --fields op"),
        ("show", "a.pcap -T fields -e ip.src -E header=y -E separator=/t", "a.pcap --fields ip.src --header"),
        ("show", "a.pcap -T json", "a.pcap --json"),
        ("show", "a.pcap -T ek -Y op==PING", "a.pcap --json -Y op==PING"),
        ("show", "a.pcap -V", "a.pcap -v"),
        ("show", "-nn -r a.pcap -X", "a.pcap -x"),
        ("show", "a.pcap -e", "a.pcap -e"),
        ("stats", "-q -r a.pcap -z conv,tcp", "-q a.pcap --connections"),
        ("stats", "a.pcap -z io,stat,0.5", "a.pcap --interval 0.5s"),
        ("stats", "a.pcap -z endpoints,ip", "a.pcap --talkers"),
        ("extract", "-r a.pcap -w b.pcap", "a.pcap --out b.pcap"),
        ("export", "a.pcap -o tables", "a.pcap --out tables"),
        ("show", "a.pcap -- -r", "a.pcap -- -r"),
        ("show", "a.pcap --op PUBLISH -t ad -d tcp.port==1,fq", "a.pcap --op PUBLISH -t ad -d tcp.port==1,fq"),
    ],
)
def test_a_line_of_tshark_is_a_line_of_mqpcap(command: str, line: str, own: str) -> None:
    assert words(command, line) == own.split()


@pytest.mark.parametrize(
    ("command", "line", "hint"),
    [
        ("show", "a.pcap -z conv,tcp", "mqpcap stats INPUT --connections"),
        ("show", "a.pcap -w b.pcap", "mqpcap extract INPUT --out b.pcap"),
        ("stats", "a.pcap -z follow,tcp,ascii,3", "mqpcap follow CAPTURE 3"),
        ("stats", "a.pcap -z sip,stat", "conv,tcp"),
        ("show", "a.pcap -T pdml", "fields, json, ek and text"),
        ("show", "a.pcap -r", "requires an argument"),
    ],
)
def test_what_has_no_counterpart_is_misuse_with_the_line_that_would_do(command: str, line: str, hint: str) -> None:
    with pytest.raises(click.UsageError, match=hint):
        words(command, line)


def test_a_line_without_a_command_means_one() -> None:
    assert command_of(["-r", "a.pcap", "-Y", "fq"]) == "show"
    assert command_of(["-G", "fields"]) == "fields"
    assert is_of_tshark(["-i", "lo"])
    assert not is_of_tshark(["show", "-r"])
    assert not is_of_tshark([])
    assert not is_of_tshark(["--help"])
