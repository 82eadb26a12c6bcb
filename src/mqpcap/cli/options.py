"""The options that commands share, from the words of the command line to values."""

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from mqpcap.cli.completion import one_of, rules

if TYPE_CHECKING:
    from mqpcap.decode.detection import DecodeAs
    from mqpcap.pipeline import Options
    from mqpcap.query import Query

P = ParamSpec("P")
R = TypeVar("R")

# Compiled when an option is given, not for every start.
_DECODE_AS = r"tcp\.port\s*==\s*(\d{1,5})\s*,\s*(\S+)"
_SIZE = r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(i?)[bB]?"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
SMALLEST_MEMORY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Choices:
    """What the common options say.

    bodies: bytes of a body that are kept, None for all. jobs, max_memory_bytes: None is ours to choose.
    """

    decode_as: "tuple[DecodeAs, ...]" = ()
    show_secrets: bool = False
    bodies: int | None = None
    jobs: int | None = None
    max_memory_bytes: int | None = None
    strict: bool = False
    quiet: bool = False
    wanted: "Query | None" = None
    """Which messages, where a command takes this with its choices."""

    @property
    def core_count(self) -> int:
        """How many cores may be used."""
        return self.jobs or os.cpu_count() or 1

    def dissection(self, side_by_side_count: int = 1, only: frozenset[str] | None = None) -> "Options":
        """The same for one of so many dissections that share the memory; ``only``: of the optional tables these."""
        from mqpcap.pipeline import OPTIONAL_TABLES, Options
        from mqpcap.tables.messages import Policy
        from mqpcap.tcp.reassembly import MAX_BYTES

        memory_bytes = (self.max_memory_bytes or MAX_BYTES) // side_by_side_count
        return Options(
            self.decode_as,
            Policy(self.show_secrets, self.bodies),
            max(memory_bytes, SMALLEST_MEMORY_BYTES),
            optional_tables=OPTIONAL_TABLES if only is None else only,
        )


def _decode_as(ctx: click.Context, param: click.Parameter, rules: tuple[str, ...]) -> "tuple[DecodeAs, ...]":
    """``tcp.port==9092,flymq`` as frames takes it; exits 2 with what would do."""
    if not rules:
        return ()
    from mqpcap.decode.detection import DecodeAs

    made = []
    for rule in rules:
        found = re.fullmatch(_DECODE_AS, rule.strip())
        if found is None:
            raise click.BadParameter(f"{rule!r} is no rule like tcp.port==9092,flymq", ctx, param)
        if not 1 <= int(found[1]) <= 65535:
            raise click.BadParameter(f"{found[1]} is no TCP port", ctx, param)
        made.append(DecodeAs(int(found[1]), protocol_name(found[2], param, ctx)))
    return tuple(made)


def _bodies(ctx: click.Context, param: click.Parameter, word: str) -> int | None:
    """``full``, ``none`` or a number: how many bytes to keep, None for all."""
    word = word.strip().lower()
    if word == "full":
        return None
    if word == "none":
        return 0
    if not (word.isascii() and word.isdecimal()):
        raise click.BadParameter(f"{word!r} is neither full nor none nor a number of bytes", ctx, param)
    return min(int(word), (1 << 31) - 1)


def _size_bytes(ctx: click.Context, param: click.Parameter, word: str | None) -> int | None:
    """``512MB``, ``2GiB`` or a number of bytes."""
    if word is None:
        return None
    found = re.fullmatch(_SIZE, word.strip())
    if found is None:
        raise click.BadParameter(f"{word!r} is no size like 512MB or 2GiB", ctx, param)
    size_bytes = int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].lower()])
    if size_bytes < SMALLEST_MEMORY_BYTES:
        raise click.BadParameter(f"{word} is too little; the least is {SMALLEST_MEMORY_BYTES} bytes", ctx, param)
    return size_bytes


def period_s(ctx: click.Context, param: click.Parameter, word: str | None) -> int | None:
    """``90s``, ``15m``, ``1h``: seconds."""
    if word is None:
        return None
    found = re.fullmatch(r"(\d{1,9})\s*([smhd])", word.strip().lower(), re.ASCII)
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{word!r} is no period like 1h; the units are s, m, h and d", ctx, param)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def protocol_names(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Names of protocols in lower case."""
    return tuple(protocol_name(word, param, ctx) for word in words)


def protocol_name(word: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> str:
    """The protocol's name; exits 2, naming all, if there is none."""
    from mqpcap.protocols import protocols

    known = protocols()
    if word.lower() not in known:
        raise click.BadParameter(f"{word!r} is no protocol; there are {', '.join(known)}", ctx, param)
    return word.lower()


allow_missing = click.option(
    "--allow-missing", is_flag=True, help="Replace an earlier export even if an input cannot be read."
)


utc_option = click.option("-u", "--utc", is_flag=True, help="Times in UTC, marked Z, not in local time.")
"""Every command that prints times for people has it."""
color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="Colours: auto is on a terminal, unless NO_COLOR is set.",
)  # fmt: skip


def common(command: Callable[P, R]) -> Callable[..., R]:
    """The command with the common options in front, given to it as ``choices``."""

    @click.option("-d", "--decode-as", "decode_as", callback=_decode_as, multiple=True, metavar="RULE",
                  shell_complete=rules,
                  help="Read a server port as a protocol: tcp.port==9092,flymq (repeatable).")  # fmt: skip
    @click.option("--show-secrets", is_flag=True, help="Show passwords and keys instead of ***.")
    @click.option("--bodies", callback=_bodies, default="full", show_default=True, metavar="full|none|N",
                  shell_complete=one_of(("full", "none")),
                  help="How much of each body to keep: all, nothing, the first N bytes.")  # fmt: skip
    @click.option("--jobs", type=click.IntRange(min=1), metavar="N",
                  help="Cores to use; captures are read side by side.  [default: all]")  # fmt: skip
    @click.option("--max-memory", callback=_size_bytes, metavar="SIZE",
                  help="Bound of what waits in memory for missing bytes, and of connections that are kept there, "
                       "as in 512MB.")  # fmt: skip
    @click.option("--strict", is_flag=True, help="Exit 1 if a message has a flaw or a file was skipped.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress, notes or summary on stderr; errors stay.")
    @functools.wraps(command)
    def with_choices(  # type: ignore[no-untyped-def]  # click passes what the command declares
        *args, decode_as, show_secrets, bodies, jobs, max_memory, strict, quiet, **kwargs
    ):
        choices = Choices(decode_as, show_secrets, bodies, jobs, max_memory, strict, quiet)
        return command(*args, choices=choices, **kwargs)  # type: ignore[arg-type]  # choices is the command's own

    return with_choices
