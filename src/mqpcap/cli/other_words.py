"""Words that users of other tools try first, and the words of mqpcap for them: for the text of an error.

In: an error of click, or inputs that are not there. Called by: `mqpcap.cli`, `mqpcap.cli.reading`. The words of tshark
that commands accept, such as ``-r``, are in `tshark_words`.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

import click

_COMMANDS = {
    "show INPUT": "cat consume decode dump list-messages print read tail view messages",
    "info INPUT": "list ls capinfos summary describe verify check",
    "stats INPUT": "count summarize summarise metrics",
    "stats INPUT --by topic": "topics queues exchanges destinations",
    "stats INPUT --producers": "producers publishers",
    "stats INPUT --consumers": "consumers subscribers groups",
    "stats INPUT --errors": "errors failures",
    "stats INPUT --metric latency": "latency latencies rtt",
    "stats INPUT --connections": "conv connections conversations streams sessions flows",
    "stats INPUT --talkers": "top talkers hosts clients endpoints",
    "follow CAPTURE --message ID": "trace track",
    "follow CAPTURE c1": "stream conversation",
    "extract INPUT --out FILE": "filter slice cut split merge save write anonymize anonymise",
    "export INPUT --out DIR": "convert parquet tables import",
    "show -i IFACE": "capture live sniff listen watch",
    "ask": "query sql questions",
}
_OPTIONS = {
    "--topic NAME, with --raw-body for bodies alone": "-C --queue --exchange --destination",
    "--client IP:PORT or --server IP:PORT": "--ip --host --src --dst --port --addr -p",
    "--server IP:PORT; a ring of files is --ring NxSIZE of extract -i": "-b",
    "-c N|--top N": "--limit --head --max --num --number --lines",
    "--since TIME": "--from --start --after --begin",
    "--until TIME": "--to --end --before",
    "--fields NAMES, --csv or --json": "--format --columns --output --output-format -F",
    "--by NAMES": "--group-by --groupby --group --key",
    "--sort NAME": "--sort-by --order-by --order",
    "-Y FILTER": "--where --query --select --display-filter -R",
    "-Y 'client_name == NAME'": "--user --username --name",
    "--op OP": "--type --operation --opcode --method",
    "--status error": "--errors --error --failed",
    "--since TIME selects; of extract, --out FILE": "-o --offset",
    "mqpcap stats INPUT --producers": "-L",
}
_COMMAND_BY_WORD = {word: command for command, words in _COMMANDS.items() for word in words.split()}
_OPTION_BY_WORD = {word: option for option, words in _OPTIONS.items() for word in words.split()}
_CAPTURE_FILTER = re.compile(r"(host|port|net|src|dst|tcp|ip)( .*)?")


def command_hint(word: str) -> str | None:
    """The command that a word may mean.

    >>> command_hint("topics")
    'there is no command topics: that is mqpcap stats INPUT --by topic'
    """
    command = _COMMAND_BY_WORD.get(word.lower())
    return command and f"there is no command {word}: that is mqpcap {command}"


def _option_hint(error: click.NoSuchOption) -> str:
    """The line for an unknown option: the first option with its meaning that the command has, any, or the nearest."""
    if error.option_name == "--bodies" and error.ctx is not None and error.ctx.info_name == "extract":
        from mqpcap.listing.extraction import NO_BODIES

        return NO_BODIES
    words = _OPTION_BY_WORD.get(error.option_name, "").split("|")
    command = error.ctx and error.ctx.command
    option_names = [name for param in command.params for name in param.opts] if command else []
    if option := next((option for option in words if option.split(" ")[0] in option_names), words[0]):
        return f"there is no option {error.option_name}: that is {option}"
    near = "".join(f"did you mean {name}? " for name in get_close_matches(error.option_name, option_names, 1))
    path = error.ctx.command_path if error.ctx else "mqpcap"
    return f"No such option {error.option_name}; {near}{path} --help lists all"


def error_text(error: click.ClickException) -> str:
    """The text of an error, with the option that an unknown option may mean."""
    if isinstance(error, click.NoSuchOption):
        return _option_hint(error)
    text = error.format_message()
    if isinstance(error, click.BadParameter) and error.param is not None and "-t" in error.param.opts:
        text = f"{text.rstrip('.')}; topics are selected by --topic"
    return text


def input_hints(names: Sequence[str]) -> list[str]:
    """What inputs that are not there may mean: a filter, or a count.

    >>> input_hints(["3"])
    ['there is no file 3; -c 3 stops after 3 messages']
    """
    for name in names:
        if is_capture_filter([name]) or "==" in name:
            filter = "-Y 'ip.addr == 10.0.0.1 and tcp.port == 9092' selects messages of a capture"
            return [f"there is no file {name}; {filter}"]
    return [
        f"there is no file {name}; -c {name} stops after {name} messages"
        for name in names
        if name.isdecimal() and name.isascii()
    ]


def is_capture_filter(words: Sequence[str]) -> bool:
    """Whether words are a filter of tcpdump, or begin one."""
    return bool(words and _CAPTURE_FILTER.fullmatch(words[0]))
