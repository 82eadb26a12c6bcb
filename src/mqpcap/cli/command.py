"""A command: its help on one screen, and the words of tshark and tcpdump that it takes for its own.

Options that many commands share are listed by name in two sections of a command's help; ``mqpcap help select`` and
``mqpcap help common`` explain them once.
"""

import functools
import re
from collections.abc import Sequence

import click

from mqpcap.cli.tshark_words import own_words

SELECT = (
    "-Y", "--protocol", "--op", "--topic", "--client", "--server", "--connection", "--status", "--grep", "--since",
    "--until", "--flawed", "--unanswered", "--slower-than",
)  # fmt: skip
COMMON = (
    "-t", "-u", "-e", "--header", "--csv", "--color", "--bodies", "-d", "--show-secrets", "--jobs", "--max-memory",
    "--keylog", "--one", "--strict", "-q", "--help",
)  # fmt: skip
SHARED = {"select": ("Select messages", SELECT), "common": ("Common options", COMMON)}
"""By the word after ``mqpcap help``: the title of a section, and its options."""
NAME_WIDTH = 26
"""The widest column of names; longer ones stand above their explanation."""
LEAST_SHARED = 4
"""A section of names is not worth its lines below this count of options."""


class WithExamples(click.Command):
    """A command or a group whose help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, each on a line that can be copied."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class Group(WithExamples, click.Group):
    """A group of commands."""


class Command(WithExamples):
    """A command of mqpcap."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words of tshark become the command's own before click reads them."""
        options = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        return super().parse_args(ctx, own_words(self.name or "", options, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options with their explanation, then the names of shared options."""
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        sections = {word: section for word in SHARED if len(section := _section(params, word)) >= LEAST_SHARED}
        shared = [param for section in sections.values() for param in section]
        records = [record for param in params if param not in shared and (record := _record(ctx, param))]
        if records:
            with formatter.section("Options"):
                formatter.write_dl(records, col_max=NAME_WIDTH)
        for word, section in sections.items():
            formatter.write(f"\n{SHARED[word][0]} (explained by mqpcap help {word}):\n")
            _write_names(ctx, formatter, section)


command = functools.partial(click.command, cls=Command)
"""``click.command`` for the commands of mqpcap."""


def _record(ctx: click.Context, param: click.Parameter) -> tuple[str, str] | None:
    """Names and explanation of an option, without the limits of its numbers."""
    record = param.get_help_record(ctx)
    return record and (record[0], re.sub(r"\s+\[[\d<=]*x[<>=]+\d+\]$", "", record[1]))


def _section(params: Sequence[click.Parameter], word: str) -> list[click.Parameter]:
    """The options of a shared section, in its order."""
    names = SHARED[word][1]
    return [param for name in names for param in params if name in param.opts]


def _write_names(ctx: click.Context, formatter: click.HelpFormatter, params: Sequence[click.Parameter]) -> None:
    """Names of options with their values, as many on a line as fit."""
    lines = [""]
    for param in params:
        record = param.get_help_record(ctx)
        name = "  " + (record[0] if record else "")
        if len(lines[-1]) + len(name) > formatter.width:
            lines.append("")
        lines[-1] += name
    formatter.write("".join(f"{line}\n" for line in lines))


@command(epilog="Examples: mqpcap help show\n          mqpcap help select")
@click.argument("topic", required=False, metavar="[COMMAND|select|common]")
@click.pass_context
def help(ctx: click.Context, topic: str | None) -> None:
    """Explain a command, or the options that many commands share."""
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    if topic in SHARED:
        formatter = root.make_formatter()
        title, _ = SHARED[topic]
        with formatter.section(title):
            formatter.write_dl([record for param in _shared_params(topic, root)
                                if (record := _record(root, param))])  # fmt: skip
        click.echo(formatter.getvalue().rstrip("\n"))
        return
    explained = root.command if topic is None else root.command.get_command(root, topic)
    if explained is None:
        raise click.UsageError(f"there is no command {topic!r}; there are {', '.join(root.command.commands)}")
    parent = root if explained is root.command else click.Context(explained, info_name=topic, parent=root)
    click.echo(explained.get_help(parent))


def _shared_params(word: str, root: click.Context) -> list[click.Parameter]:
    """The options of a shared section, each from the first command that has it."""
    assert isinstance(root.command, click.Group)
    params = [param for entry in root.command.commands.values() for param in entry.get_params(root)]
    return [next(param for param in params if name in param.opts) for name in SHARED[word][1]]
