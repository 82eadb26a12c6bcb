"""The table of cases that users of other tools reported, as its page has it."""

from pathlib import Path

PAGE = Path(__file__).parents[1] / "tcp" / "README.md"


def case_rows(title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
