"""The command line: options to calls of the pipeline, results to text, JSON and files.

Rows go to stdout, notes to stderr. A command's module imports nothing heavy before it runs, so help appears at once.
Exit code 0: done, 1: failed, 2: misused.
"""

import os
import sys
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from mqpcap import __version__
from mqpcap.cli.command import Group
from mqpcap.cli.console import print_note
from mqpcap.cli.other_words import command_hint, error_text
from mqpcap.cli.process import (
    Terminated,
    configure_process,
    escape_unencodable_output,
    interruption,
    open_closed_streams,
    skip_final_cleanup,
    unwind_on_signals,
)
from mqpcap.cli.tshark_words import command_of, is_of_tshark
from mqpcap.errors import MisuseError, MqpcapError
from mqpcap.wording import error_line, is_out_of_memory

NAMES = (
    "export", "show", "stats", "follow", "extract", "diff", "report", "info", "protocols", "fields", "explain", "ask",
    "lake", "samples", "wireshark", "spark", "help",
)  # fmt: skip
"""The commands, in the order of a first session. The module of a command has its name."""


if "_MQPCAP_COMPLETE" in os.environ:  # a shell asks, in a form that the module declares
    import mqpcap.cli.completion  # noqa: F401


class LazyCommands(UserDict[str, Any]):
    """The commands by name, None until its module is imported: a run needs a single command."""

    def __getitem__(self, name: str) -> click.Command:
        if self.data[name] is None:
            module = import_module(f"mqpcap.cli.{'command' if name == 'help' else name}")
            self.data[name] = getattr(module, name)
        command: click.Command = self.data[name]
        return command


class Commands(Group):
    """A group whose failures are one line on stderr, never a traceback."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run as the process that it is, which needs no Scapy; code that uses Scapy calls ``main.main``."""
        configure_process()
        open_closed_streams()
        escape_unencodable_output()
        unwind_on_signals()
        try:
            return super().__call__(*args, **kwargs)
        except OSError as error:  # of help, which is written before a command runs
            print_note(f"mqpcap: {error_line(error)}")
            _drop_stdout()
            sys.exit(1)
        finally:
            skip_final_cleanup()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A line that begins with tshark's options gets the command that it means."""
        try:
            return super().parse_args(ctx, [command_of(args), *args] if is_of_tshark(args) else args)
        except click.NoSuchOption as error:
            print_note(f"mqpcap: {error_text(error)}")
            ctx.exit(2)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; a file in its place is shown how to be read."""
        if args and args[0] not in self.commands:
            if os.path.exists(args[0]):
                raise click.UsageError(f"a command comes first: mqpcap show {args[0]}, or mqpcap info {args[0]}")
            if hint := command_hint(args[0]):
                raise click.UsageError(hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """The command's result; exits 1 on what the user has to know."""
        try:
            with _one_line_of_signals():
                result: object = super().invoke(ctx)
                sys.stdout.flush()
        except click.UsageError as error:
            if "\n" in error.format_message():  # help, where nothing was asked
                raise
            print_note(f"mqpcap: {error_text(error)}")
            ctx.exit(2)
        except MisuseError as error:
            print_note(f"mqpcap: {error_line(error)}")
            ctx.exit(2)
        except BrokenPipeError:
            # Whoever read our rows has enough of them.
            _drop_stdout()
            ctx.exit(0)
        except Exception as error:
            if not isinstance(error, MqpcapError | OSError) and not is_out_of_memory(error):
                raise
            print_note(f"mqpcap: {error_line(error)}")
            _drop_stdout()
            ctx.exit(1)
        return result

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """The context of a run; an interrupted process ends here, before click writes its own line."""
        with _one_line_of_signals():
            return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of a first session."""
        return list(self.commands)


@contextmanager
def _one_line_of_signals() -> Iterator[None]:
    """End the process with one line where a signal interrupts it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        interrupt = interruption(error)
        if interrupt is None:
            raise
        print_note(f"mqpcap: {'terminated' if isinstance(interrupt, Terminated) else 'interrupted'}")
        # A thread that waits for a pipe would be waited for; and where the signal came in code made by `exec`, as
        # dataclasses are, Python would end by it.
        os._exit(1)


def _drop_stdout() -> None:
    """Let what is still buffered go: flushing it at exit would fail again."""
    with suppress(OSError, ValueError, AttributeError):  # where it is none of the system's files
        descriptor, nowhere = sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


@click.group(
    cls=Commands,
    commands=LazyCommands(dict.fromkeys(NAMES)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples: mqpcap samples pcaps\n          mqpcap show pcaps/blipmq/qos1.pcap\n          mqpcap help show",
)
@click.version_option(__version__, prog_name="mqpcap")
def main() -> None:
    """Dissect captures of message queues: fq, kokaq, FlyMQ, BlipMQ, BIND 10 msgq and MQTT."""
