"""The module map of ``src/mqpcap/README.md``: each module with the first line of its docstring.

``python tests/support/module_map.py`` prints the map, with ``--write`` it renews the page.
"""

import ast
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "mqpcap"
PAGE = PACKAGE / "README.md"
BEGIN, END = "<!-- module map: begin -->\n", "<!-- module map: end -->\n"
REGENERATE = "python tests/support/module_map.py --write"


def module_map() -> str:
    """The map as Markdown: a table for each folder."""
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    return "\n".join(_folder(folder) for folder in folders)


def _folder(folder: Path) -> str:
    rows = [f"| `{path.name}` | {first_line(path)} |" for path in sorted(folder.glob("*.py"))]
    name = folder.relative_to(PACKAGE.parent).as_posix()
    return "\n".join([f"**{name}/**", "", "| module | what it is |", "|---|---|", *rows, ""])


@cache
def first_line(path: Path) -> str:
    """The first line of a module's docstring, ready for a table's cell."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "`").replace("|", "\\|")


def shown() -> str:
    """The map that the page has now."""
    _, _, behind = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return behind.partition(END)[0]


def write() -> None:
    """Put the map of today into the page."""
    before, begin, behind = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = behind.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has no markers {BEGIN.strip()} and {END.strip()}")
    PAGE.write_text(before + begin + module_map() + end + after, encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    else:
        print(module_map(), end="")
