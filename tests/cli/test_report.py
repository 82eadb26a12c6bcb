"""``mqpcap report``: one file that says what is there, obeys nothing of it, and replaces nothing but a report."""

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import running
from known import pings, truth
from running import ROOT, Ended

from mqpcap.statistics.report_page import MARK

pytest.importorskip("matplotlib")

SESSION = "pcaps/fq/session.pcap"
ERRORS = "pcaps/blipmq/errors.pcap"
HOSTILE = (
    "<script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">", "</table></body>",
    "'\"><svg onload=document.title='owned'>", "--></style><!--", "a\x1b[31mb\u202ec",
)  # fmt: skip
SECRET = b"a-key-that-nobody-may-see"


def run(*arguments: str | Path) -> Ended:
    return running.run("report", *arguments)


def report_text(folder: Path, *arguments: str | Path) -> str:
    """The text of a report that is written now."""
    said = run("-q", *arguments, "--out", folder / "report.html")
    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "")
    return (folder / "report.html").read_text(encoding="utf-8")


def hostile(folder: Path) -> Path:
    capture = folder / "hostile.pcap"
    capture.write_bytes(pings([1, 2, 3], HOSTILE, SECRET))
    return capture


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind of capture, to be read only."""
    folder = tmp_path_factory.mktemp("reports")
    captures = {"session": SESSION, "errors": ERRORS, "login": "pcaps/flymq/login.pcap", "hostile": hostile(folder)}
    for name, capture in captures.items():
        (folder / name).mkdir()
        report_text(folder / name, capture)
    return {name: folder / name / "report.html" for name in captures}


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


# -- what it says ----------------------------------------------------------------------------------------


def test_it_goes_to_standard_output(tmp_path: Path) -> None:
    written = running.run("report", "-q", ROOT / SESSION, "--out", "-", cwd=tmp_path)

    assert written.stdout.startswith(MARK) and written.stdout.endswith("</html>\n")
    assert (written.stderr, os.listdir(tmp_path)) == ("", [])


def test_the_report_has_verdict_producers_slowest_and_trust(reports: dict[str, Path]) -> None:
    page = reports["session"].read_text()

    text = Elements(page).text
    assert "whole: every captured byte of our protocols was decoded" in text
    for word in ("Messages over time", "Latencies", "Producers", "Consumers", "Slowest requests", "Trust"):
        assert word in text
    assert "bob" in text and "linesender" in text
    assert f"{truth('fq/session')['tcpdump']['packets']}" in text
    assert page.count("<svg") == page.count("</svg>") == 4
    assert [page.count(f'<svg class="{width}"') for width in ("wide", "narrow")] == [2, 2]


def test_errors_are_those_that_the_client_logged(reports: dict[str, Path]) -> None:
    text = Elements(reports["errors"].read_text()).text

    count = truth("blipmq/errors")["counts"]["s2c"]["NACK"]
    assert f"{count} errors" in text
    assert "invalid PUBLISH payload" in text


def test_a_lossy_capture_is_not_called_whole(tmp_path: Path) -> None:
    text = Elements(report_text(tmp_path, "pcaps/faults/blipmq_lost.pcap")).text

    assert "with care: 21 B were never captured" in text


@pytest.mark.parametrize("name", ["strangers/tls_9092", "kokaq/go1_midstream", "msgq/json_session"])
def test_every_kind_of_capture_has_a_report(name: str, tmp_path: Path) -> None:
    assert report_text(tmp_path, f"pcaps/{name}.pcap").endswith("</html>\n")


# -- what it must not do ---------------------------------------------------------------------------------


def test_nothing_of_a_capture_is_obeyed(reports: dict[str, Path]) -> None:
    page = reports["hostile"].read_text()

    elements = Elements(page)
    assert not {"script", "img", "iframe", "link", "object", "base", "form"} & {tag for tag, _ in elements.found}
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert html.escape(HOSTILE[0]) in page
    for topic in HOSTILE[:-1]:
        assert topic in elements.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert elements.found[-1][0] in ("td", "p")


def test_nothing_is_fetched(reports: dict[str, Path]) -> None:
    page = reports["hostile"].read_text()

    attributes = [pair for _, some in Elements(page).found for pair in some.items()]
    links = [value for name, value in attributes if name in ("src", "href", "xlink:href", "data", "action", "srcset")]
    assert all(value is not None and value.startswith("#") for value in links)
    assert not re.search(r"@import|url\((?!#)", page)
    assert "default-src 'none'" in page


def test_the_page_names_its_policy_as_browsers_read_it(reports: dict[str, Path]) -> None:
    """https://www.w3.org/TR/CSP3/#meta-element: any other http-equiv is ignored."""
    page = reports["session"].read_text()

    assert re.findall(r'<meta http-equiv="([^"]*)" content="default-src', page) == ["Content-Security-Policy"]


def test_ids_are_unique(reports: dict[str, Path]) -> None:
    ids = [some["id"] for _, some in Elements(reports["session"].read_text()).found if "id" in some]

    assert len(ids) == len(set(ids)) > 0


def test_secrets_are_masked(reports: dict[str, Path]) -> None:
    assert SECRET.decode() not in reports["hostile"].read_text()
    for name in ("session", "login"):
        page = reports[name].read_text()
        passwords = {login["password"] for login in truth("fq/session")["auth"]}
        assert not [password for password in passwords if password in page]


def test_colours_are_those_of_the_page(reports: dict[str, Path]) -> None:
    """Text of a drawing in a colour of its own would vanish in light or dark."""
    page = reports["session"].read_text()

    texts = re.findall(r"<text style=\"([^\"]*)\"", page)
    assert texts
    assert all("fill: var(--ink)" in style for style in texts)
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}[;\"]", drawings)


# -- where it goes ---------------------------------------------------------------------------------------


def listed(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_an_earlier_report_is_replaced_and_nothing_else_is_left(reports: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(reports["session"], tmp_path)

    page = report_text(tmp_path, ERRORS)

    assert ERRORS in page
    assert page.startswith(MARK)
    assert listed(tmp_path) == ["report.html"]


def others(folder: Path) -> Iterator[Path]:
    text = folder / "letter.html"
    text.write_text("<!doctype html>\nDear colleague")
    yield text
    empty = folder / "empty.html"
    empty.write_text("")
    yield empty
    (folder / "folder").mkdir()
    yield folder / "folder"
    link = folder / "link.html"
    link.symlink_to(text)
    yield link
    dangling = folder / "dangling.html"
    dangling.symlink_to(folder / "nowhere")
    yield dangling


def test_a_file_that_is_no_report_stays(tmp_path: Path) -> None:
    for path in others(tmp_path):
        before = listed(tmp_path), path.read_text() if path.is_file() else None

        said = run(SESSION, "--out", path)

        assert (said.exit_code, said.stdout, len(said.stderr.splitlines())) == (1, "", 1)
        assert path.name in said.stderr
        assert (listed(tmp_path), path.read_text() if path.is_file() else None) == before


def test_the_capture_itself_is_not_written_to(tmp_path: Path) -> None:
    capture = tmp_path / "session.pcap"
    shutil.copy(ROOT / SESSION, capture)

    said = run(capture, "--out", capture)

    assert said.exit_code == 1
    assert capture.read_bytes() == (ROOT / SESSION).read_bytes()


def test_a_capture_that_cannot_be_read_leaves_the_earlier_report(reports: dict[str, Path], tmp_path: Path) -> None:
    before = reports["session"].read_text()
    shutil.copy(reports["session"], tmp_path)

    said = run("-q", tmp_path / "nothing.pcap", "--out", tmp_path / "report.html")

    assert (said.exit_code, len(said.stderr.splitlines())) == (1, 1)
    assert (tmp_path / "report.html").read_text() == before
    assert listed(tmp_path) == ["report.html"]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = run(SESSION, "--out", tmp_path / "nowhere" / "report.html")

    assert (said.exit_code, said.stdout, len(said.stderr.splitlines())) == (1, "", 1)


def test_misuse_is_exit_2() -> None:
    assert run(SESSION).exit_code == 2
    assert run("--out", "report.html").exit_code == 2


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), running.environment()["PYTHONPATH"]])

    said = running.run("report", ROOT / SESSION, "--out", tmp_path / "report.html", PYTHONPATH=path)

    assert (said.exit_code, said.stdout) == (1, "")
    assert (
        said.stderr == "mqpcap: there is no matplotlib to draw with: pip install '.[report]' in the source of mqpcap\n"
    )


def test_the_example_of_the_help_runs(tmp_path: Path) -> None:
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
    words = run("--help").stdout.split("Example: mqpcap report ")[1].split()

    said = running.run("report", *words, cwd=tmp_path)

    assert said.exit_code == 0, said.stderr
    assert said.stderr.startswith("report.html: ")


# -- in a browser ----------------------------------------------------------------------------------------

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    pytest.skip(f"none of {', '.join(BROWSERS)} is installed")


def opened(browser: str, page: Path, *options: str) -> str:
    """What the browser says of a page."""
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={page.parent}/profile",
    ]
    ended = subprocess.run(
        [browser, *words, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=1200
    )
    return ended.stdout


def test_a_browser_shows_it_and_runs_nothing_of_it(browser: str, reports: dict[str, Path]) -> None:
    document = opened(browser, reports["hostile"], "--dump-dom")

    elements = Elements(document)
    assert "<title>owned" not in document
    assert "hostile.pcap: mqpcap report</title>" in document
    assert {"svg", "table", "figure"} <= {tag for tag, _ in elements.found}
    assert "script" not in {tag for tag, _ in elements.found}
    assert HOSTILE[0] in elements.text


@pytest.mark.parametrize("width", [420, 1280])
def test_no_table_is_clipped(browser: str, width: int, reports: dict[str, Path]) -> None:
    """A page around the report measures its tables: the report itself runs nothing."""
    around = reports["session"].with_name("around.html")
    around.write_text(
        f'<iframe src="report.html" style="width:{width}px;height:900px;border:0" onload="measure(this)"></iframe>'
        "<script>function measure(frame) { const page = frame.contentDocument;"
        "const wide = [...page.querySelectorAll('.scroll')].filter(x => x.scrollWidth > x.clientWidth);"
        "document.title = `${page.querySelectorAll('.scroll').length} tables, ${wide.length} clipped, page `"
        " + (page.documentElement.scrollWidth > page.documentElement.clientWidth ? 'wide' : 'fits'); }</script>"
    )

    document = opened(browser, around, "--allow-file-access-from-files", "--dump-dom")

    title = re.search("<title>(.*?)</title>", document)
    assert title and re.fullmatch(r"[5-9] tables, 0 clipped, page fits", title[1])


@pytest.mark.parametrize(("scheme", "paper"), [(1, (255, 255, 255)), (0, (13, 17, 23))], ids=["light", "dark"])
def test_a_browser_draws_it_in_light_and_dark(
    browser: str, scheme: int, paper: tuple[int, int, int], reports: dict[str, Path], tmp_path: Path
) -> None:
    """The corner is paper; somewhere in the drawing of messages there is ink, far from the paper's colour."""
    from matplotlib.image import imread

    opened(
        browser, reports["session"], f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1100,600",
        f"--screenshot={tmp_path / 'page.png'}",
    )  # fmt: skip

    picture = (imread(tmp_path / "page.png")[:, :, :3] * 255).round().astype(int)
    assert tuple(picture[2, 2].tolist()) == paper
    labels = picture[200:580, 20:75]  # left of the axes, where numbers stand
    assert abs(labels - paper).sum(axis=2).max() > 500
