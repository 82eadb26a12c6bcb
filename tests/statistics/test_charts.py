"""Numbers to charts: drawings that stand in one page, in its colours, and names that are text and nothing else."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from mqpcap.statistics.charts import VARIABLES, WIDTHS, _decades, latencies, timeline

NAMES = ['fq <b>x</b> & "y" ]]> \'', "a $x^2$ b", "plain"]
XLINK = "{http://www.w3.org/1999/xlink}href"


def drawings() -> list[str]:
    counts = np.array([3, 0, 5], np.int64)
    values = [(name, (0.5, 2.0, 3.0, 40.0)) for name in NAMES]
    return [y for x in WIDTHS for y in (timeline(0, 500_000_000, counts, counts // 3, x), latencies(values, x))]


def parsed(svg: str) -> ElementTree.Element:
    """The drawing as XML, with the names that an HTML page knows already."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return ElementTree.fromstring(svg.replace("<svg ", f"<svg {spaces} ", 1))


def test_ids_of_two_drawings_differ_and_references_stay_within_one() -> None:
    seen: set[str] = set()
    for svg in drawings():
        elements = list(parsed(svg).iter())
        ids = [one.attrib["id"] for one in elements if "id" in one.attrib]
        wanted = {one.attrib[XLINK].removeprefix("#") for one in elements if XLINK in one.attrib}
        wanted |= set(re.findall(r"url\(#([^)]*)\)", svg))

        assert wanted and wanted <= set(ids)
        assert len(ids) == len(set(ids)) and not seen & set(ids)
        seen |= set(ids)


def test_colours_are_those_of_the_page() -> None:
    for svg in drawings():
        assert not re.search(r"#[0-9a-fA-F]{6}\b", svg)
        assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(VARIABLES.values())
        assert all("fill: var(--ink)" in style for style in re.findall(r'<text style="([^"]*)"', svg))


def test_a_narrow_drawing_is_as_wide_as_a_telephone_shows_it() -> None:
    """Text of 10 points is at least 8 pixels high where 388 pixels are there for the drawing."""
    for svg in drawings()[2:]:
        width = float(parsed(svg).attrib["viewBox"].split()[2])
        assert 10 * 388 / width >= 8
        assert svg.startswith('<svg class="narrow"')


def test_names_are_text_whatever_stands_in_them() -> None:
    root = parsed(drawings()[1])

    texts = {"".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(NAMES) <= texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}b"))


def test_the_same_numbers_are_the_same_drawing() -> None:
    assert drawings() == drawings()


@pytest.mark.parametrize("count", [0, 1])
def test_a_timeline_may_be_empty_or_all_zero(count: int) -> None:
    zeros = np.zeros(count, np.int64)

    assert "nan" not in timeline(0, 10**9, zeros, zeros)


def test_a_timeline_has_clock_times() -> None:
    """A minute from 2023-11-14 22:13:20 UTC on."""
    svg = timeline(1_700_000_000 * 10**9, 10**9, np.ones(60, np.int64), np.zeros(60, np.int64))

    assert "22:13:40" in svg and "UTC, 2023-11-14" in svg


def test_a_latency_of_nothing_has_a_place_on_a_logarithmic_scale() -> None:
    svg = latencies([("ping", (0.0, 0.0, 0.0, 0.0))])

    assert parsed(svg).attrib["viewBox"]
    assert not re.search(r"\b(nan|inf)\b", svg)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_the_scale_ends_at_the_powers_of_ten_around_all_values(values: list[float]) -> None:
    low, high = _decades(values, 0.001)

    some = [max(value, 0.001) for value in values]
    assert low <= min(some) and max(some) <= high and low < high
    assert [round(math.log10(x), 9) % 1 for x in (low, high)] == [0, 0]
    assert min(some) < low * 10 and (high <= low * 10 or max(some) > high / 10)
