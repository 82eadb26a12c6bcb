"""``mqpcap stats``: messages, bytes, errors and latencies, counted by what one asks for."""

import signal
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.completion import one_of
from mqpcap.cli.console import put_rows, width_of
from mqpcap.cli.live import EndOfInput, Renewal, check_sources, input_options, open_captures, summary
from mqpcap.cli.options import (
    PERIOD,
    Parsed,
    comma_words,
    common,
    exit_option,
    filter_options,
    flattened,
    form_options,
    utc_option,
)  # fmt: skip
from mqpcap.cli.reading import finish, print_summary, reading
from mqpcap.errors import MisuseError
from mqpcap.reading import Choices, Outcome
from mqpcap.statistics.report_columns import BY, METRICS, chosen_columns
from mqpcap.wording import misuse_of

if TYPE_CHECKING:
    from mqpcap.query import Query
    from mqpcap.statistics.reports import StatsReport
    from mqpcap.statistics.row_lines import Form
    from mqpcap.statistics.stats_question import StatsQuestion

BARS_NOTE = "bars are of messages; --metric errors,p99 names others, --csv has all columns"


@command(epilog="Example: mqpcap stats --by op,topic pcaps/flymq/core.pcap")
@input_options
@click.option("--every", "every_s", type=PERIOD, metavar="TIME", help="With -i: write counts again every 5s.")
@click.option("--by", "key_names", metavar="NAMES", shell_complete=one_of(BY),
              help="Group by up to four names; without it by protocol,op.")  # fmt: skip
@click.option("--metric", metavar="NAMES", shell_complete=one_of(METRICS),
              help="Only count,bytes,errors,latency,p50,p95,p99 or max.")  # fmt: skip
@click.option("--interval", metavar="TIME",
              help="Count per interval, as 1s; a terminal shows bars.")  # fmt: skip
@click.option("--sort", metavar="NAME", help="Sort by this column, as p95, the largest first.")
@click.option("--reverse", is_flag=True, help="Sort the other way round.")
@click.option("--having", metavar="TEST", help="Write only rows that match, as 'p95 > 5ms'.")
@click.option("--top", type=int, metavar="N", help="Write only the first N rows.")
@click.option("--producers", is_flag=True, help="Count what each client publishes, by topic.")
@click.option("--consumers", is_flag=True, help="Count what each client requests and receives.")
@click.option("--errors", is_flag=True, help="Count failures by request, code and text.")
@click.option("--slowest", type=click.IntRange(1, 100_000), metavar="N",
              help="List the N slowest requests, with both packets.")  # fmt: skip
@click.option("--deliveries", is_flag=True, help="Measure the time from publish to delivery, by topic.")
@click.option("--list", "is_list", is_flag=True, help="With --deliveries: write each, with packets and ends.")
@click.option("--delays", is_flag=True, help="Divide time among network, server and client.")
@click.option("--connections", is_flag=True, help="List connections, with bytes and losses of each side.")
@click.option("--talkers", is_flag=True, help="List pairs of hosts; --by host or port sums.")
@form_options
@click.option("--fields", "field_names", type=Parsed(comma_words), callback=flattened, multiple=True, metavar="NAMES",
              help="Write these columns of --json with tabs between.")  # fmt: skip
@click.option("--header", is_flag=True, help="Begin --fields with a line of their names.")
@utc_option
@exit_option
@filter_options
@common
def stats(
    inputs: tuple[str, ...], interface: str | None, bpf: str | None, every_s: int | None,
    key_names: str | None, metric: str | None, interval: str | None, sort: str | None,
    reverse: bool, having: str | None, top: int | None, slowest: int | None, is_list: bool, form: "Form | None",
    field_names: tuple[str, ...], header: bool, utc: bool, must_match: bool, wanted: "Query | None", choices: Choices,
    **asking: bool,
) -> None:  # fmt: skip
    """Count messages, bytes, errors and latencies of captures. Percentiles with ~ are less than 1% off."""
    from mqpcap.api.counts import Count
    from mqpcap.capture import InputWait

    several = [name for name, is_asked in {**asking, "slowest": slowest is not None}.items() if is_asked]
    if len(several) > 1:
        raise MisuseError(f"--{several[0]} and --{several[1]} exclude each other")
    if is_list and several != ["deliveries"]:
        raise MisuseError("--list goes with --deliveries")
    name = "delivery_list" if is_list else several[0] if several else None
    report_of = partial(_report, form=form, utc=utc)
    count = Count(name, key_names, metric, interval, having, sort, reverse, top, wanted is not None, slowest, report_of)
    with misuse_of("--fields"):
        chosen_columns(count.columns, field_names)
    check_sources(inputs, interface, bpf)
    if every_s is not None and (interface is None or interval is not None):
        raise click.UsageError("--every goes with -i, without --interval")
    outcome = Outcome(choices)
    form = form or ("tsv" if field_names else "text")

    def write_rows() -> None:
        answer = count.answer()
        put_rows(chosen_columns(answer.columns, field_names), answer.rows, form, utc, header)

    if interface is None:
        with reading(inputs, outcome, wanted) as opened:
            count.read(opened)
    else:
        end = EndOfInput(signal.SIGINT, signal.SIGTERM)
        renewal = Renewal(every_s, form, write_rows)
        with end, open_captures((), interface, bpf, False, end, outcome) as listened:
            listened[0].wait = InputWait(renewal.tick, end.is_over)
            with reading((), outcome, wanted) as opened:
                opened.captures = listened
                count.read(opened, renewal.tick)
        renewal.finish()
    write_rows()
    if interface is not None:
        sys.stdout.flush()
        print_summary(outcome, summary(outcome, listened))
    opened.finish(*count.notes())
    finish(outcome, must_match and not outcome.match_count)


def _report(asked: "StatsQuestion", slowest_count: int, form: "Form | None", utc: bool) -> "StatsReport":
    """A report by its name, or groups without one; on a terminal those over time have bars."""
    from mqpcap.statistics.bars import bars

    width = width_of(sys.stdout)
    if asked.name is None and asked.interval_ns is not None and form is None and width is not None:
        is_ascii = "utf" not in (sys.stdout.encoding or "").lower()
        metrics = asked.metrics or METRICS[:1]  # more leave bars no room
        report = bars(asked.key_names or (), metrics, asked.interval_ns, utc, width, is_ascii)
        return report if asked.metrics else replace(report, more_notes=(BARS_NOTE,))
    return asked.report(slowest_count)
