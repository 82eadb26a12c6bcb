"""Words of tshark and tcpdump on a command line, as the words of mqpcap for the same.

``tshark -r a.pcap -Y op==PUBLISH -T fields -e frame.number`` works with ``mqpcap`` in place of ``tshark``. A word that
the command has itself keeps its meaning. Words that have no counterpart are misuse, with the command that would do.
"""

import re
from collections.abc import Iterator, Sequence

import click

_NO_EFFECT = ("-n", "-nn", "-l", "-2")
"""Names are never looked up, and lines of live input are written at once."""
_OTHER_WORD = {"-V": "-v", "-X": "-x", "-A": "-x", "-o": "--out"}
_FORMS: dict[str, tuple[str, ...]] = {"fields": (), "text": (), "json": ("--json",), "ek": ("--json",)}
_STATISTICS = (
    (r"conv(,.*)?", ("--connections",)),
    (r"(endpoints|hosts)(,.*)?", ("--talkers",)),
    (r"(io,phs(,.*)?|\w+,tree)", ("--by", "protocol,op")),
    (r"io,stat,(\d*\.?\d+),?", ("--interval", r"\1s")),
    (r"io,stat,(\d*\.?\d+),(.+)", ("--interval", r"\1s", "-Y", r"\2")),
    (r"(\w+,)?(srt|rtt)(,.*)?", ("--metric", "latency")),
)
"""Values of ``-z`` as patterns, and the options of ``stats`` for them."""


def command_of(args: Sequence[str]) -> str:
    """The command that a command line of tshark means, which names none.

    >>> command_of(["-q", "-r", "a.pcap", "-z", "conv,tcp"]), command_of(["-r", "a.pcap", "-w", "b.pcap"])
    ('stats', 'extract')
    """
    return "stats" if "-z" in args else "extract" if "-w" in args else "fields" if "-G" in args else "show"


def is_of_tshark(args: Sequence[str]) -> bool:
    """Whether a command line names no command but begins with an option of tshark or tcpdump."""
    return bool(args and re.fullmatch(r"-(r|i|Y|T|n|nn|V|z|w|G|q|c|d|t|l|x|X|A|2)", args[0]))


def own_words(command: str, options: set[str], args: Sequence[str]) -> list[str]:
    """The arguments of a command, with its own words in place of those of tshark; raises click.UsageError.

    options: the names that the command has itself.
    """
    fields_follow = "-T" in args and "-T" not in options
    return [word for words in _translated(command, options, iter(args), fields_follow) for word in words]


def _translated(
    command: str, options: set[str], words: Iterator[str], fields_follow: bool
) -> Iterator[tuple[str, ...]]:  # fmt: skip
    for word in words:
        if word == "--":
            yield (word, *words)
        elif word == "-e" and fields_follow:
            yield "--fields", _value(word, words)
        elif word in options or not re.match(r"-\w", word):
            yield (word,)
        elif word in _NO_EFFECT:
            yield ()
        elif word == "-r":
            yield (_value(word, words),)
        elif word == "-T":
            yield _form(_value(word, words))
        elif word == "-E":
            yield _field_form(_value(word, words))
        elif word == "-z":
            yield _statistic(command, _value(word, words))
        elif word == "-w":
            yield _written(command, _value(word, words))
        elif word == "-G" and command == "fields":
            yield ()
            next(words, None)
        elif _OTHER_WORD.get(word) in options:
            yield (_OTHER_WORD[word],)
        else:
            yield (word,)


def _value(option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise click.UsageError(f"Option '{option}' requires an argument.")
    return value


def _form(name: str) -> tuple[str, ...]:
    if name not in _FORMS:
        raise click.UsageError(f"-T {name}: there are fields, json, ek and text; bytes are with -x, CSV with --csv")
    return _FORMS[name]


def _field_form(setting: str) -> tuple[str, ...]:
    """``header=y`` and the separators that ``--fields`` and ``--csv`` write."""
    forms = {"header=y": ("--header",), "header=n": (), "separator=/t": (), "separator=,": ("--csv",), "quote=d": ()}
    if setting not in forms:
        raise click.UsageError(f"-E {setting}: there are header=y, separator=/t (as without it) and separator=,")
    return forms[setting]


def _statistic(command: str, name: str) -> tuple[str, ...]:
    if match := re.fullmatch(r"follow,tcp,\w+,(\d+)", name):
        raise click.UsageError(f"-z {name}: that is mqpcap follow CAPTURE {match[1]}")
    if name.startswith("expert"):
        raise click.UsageError(f"-z {name}: that is mqpcap info INPUT, or stats INPUT --errors")
    for pattern, words in _STATISTICS:
        if match := re.fullmatch(pattern, name):
            options = tuple(match.expand(word) for word in words)
            if command != "stats":
                raise click.UsageError(f"-z {name}: that is mqpcap stats INPUT {' '.join(options)}")
            return options
    raise click.UsageError(
        f"-z {name}: stats has conv,tcp, endpoints,ip, io,stat,SECONDS, io,phs and srt; or --by NAMES"
    )


def _written(command: str, name: str) -> tuple[str, ...]:
    if command != "extract":
        raise click.UsageError(f"-w: packets are written by mqpcap extract INPUT --out {name}")
    return "--out", name
