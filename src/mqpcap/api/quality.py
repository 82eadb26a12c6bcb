"""``mqpcap.info`` and ``mqpcap.report``: what a capture is, and how far it can be trusted."""

import os
from typing import BinaryIO, Unpack

from mqpcap.api.inputs import Source, inputs_of
from mqpcap.arrays import file_text
from mqpcap.reading import CallOptions, background, size_bytes
from mqpcap.statistics.capture_quality import CaptureQuality, quality_of


def info(path: Source, **options: Unpack[CallOptions]) -> list[CaptureQuality]:
    """Kind and quality of each capture: `CaptureQuality` has ``verdict()``, ``loss_percent``, ``notes``.

    ``as_json()`` of each is its entry in ``info --json``.

    >>> import mqpcap
    >>> mqpcap.info("pcaps/faults/blipmq_lost.pcap")[0].packet_count
    381
    """
    inputs = inputs_of(path, options)
    with background(inputs.outcome.choices, size_bytes(inputs.captures)) as worker:
        reports = [quality_of(capture, inputs.outcome, inputs.progress, worker) for capture in inputs.captures]
    inputs.finish()
    return [report for report in reports if report is not None]


def report(path: Source, out: str | os.PathLike[str] | BinaryIO, **options: Unpack[CallOptions]) -> int:
    """Write a report on captures as one HTML file and return its size in bytes.

    out: a path that is new or an earlier report, or a binary file. Raises OutputError for any other path, and if
    matplotlib is not installed.
    """
    from mqpcap.statistics.charts import check_drawing
    from mqpcap.statistics.report_page import Page, check_target, encoded, write_page

    target = os.fspath(out) if isinstance(out, str | os.PathLike) else out
    if isinstance(target, str):
        check_target(target)
    check_drawing()
    inputs = inputs_of(path, options)
    page = Page(", ".join(file_text(capture.files[0]) for capture in inputs.captures), inputs.outcome)
    for capture in inputs.captures:
        page.take(capture, inputs.progress)
    inputs.check(bool(page.qualities))
    inputs.finish()
    if isinstance(target, str):
        return write_page(target, page.parts())
    return sum(map(target.write, encoded(page.parts())))
