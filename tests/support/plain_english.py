"""Counts sentences of docstrings and comments that need a second reading, and variables named by function words.

``python tests/support/plain_english.py PATH...`` prints the flagged sentences and names of each path and its figures.
A pattern is not bad English as such; a text in which many sentences match must be read twice.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

MAX_WORDS = 32
PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"(?i)\bso (?:many|much|few|long|far)\b(?! (?:that|as))",
        r"(?i)\b(?:of|behind|from|by|in|to|at|for|with|before) (?:which|whom|whose)\b",
        r"(?:^|\. )What (?:is|was|are|were|they|it|a|an|the|each|no|came|comes|may|has|have|had|people|users|stands)\b",
        r"\b(?:of|as|by|in|to|from|with|behind|than|that|says|tells|knows|reads|holds|over|for) what "
        r"(?:is|was|it|they|a|an|the|each|came|comes|may|has|have|had|people|users|stands|follows)\b",
        r"(?:^|\. )(?:Of|Behind|From then|Such|Those|That of|Where|As is|Whatever)\b",
        r"(?i)\bbehind (?!the scenes)",
        r"(?i)\b(?:is|are|was|be|been|not|nobody|who|what) told\b|\btold of\b|\btells? (?:of|apart)\b",
        r"(?i)\b(?:one|ones) (?:that|which|whose|who|of|is|has|with|in|a|at|by|before|behind)\b",
        r"(?i)\b(?:that|this|the) one\b",
        r"(?i)\b(?:is|are|was) so\b|\bnot so\b|\bif so\b|\ball the same\b|\bfrom then on\b|\bby (?:now|then)\b",
        r"(?i)\bat hand\b|\bgoes? by\b",
        r"(?i)\b(?:some|others|the rest|the other|such) (?:of|that|which|are|is|have|may|as)\b|\bwith others\b",
    )
]
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "of at by in on as is one some other others known found made said told seen here there before behind after "
        "past first last two which what who mine own such same more most less now then next rest all any none whole "
        "over under up down out",
    )
)
DIRECTIVES = ("#!", "# type:", "# noqa", "# cython", "# fmt", "# SPDX", "# pragma", "# mypy", "# ruff")


@dataclass(slots=True)
class Figures:
    """Counts of one tree of Python files, and the flagged places."""

    sentences: int = 0
    names: int = 0
    flagged_sentences: list[str] = field(default_factory=list)
    flagged_names: list[str] = field(default_factory=list)

    @property
    def sentence_percent(self) -> float:
        """Share of sentences that are flagged."""
        return 100 * len(self.flagged_sentences) / max(self.sentences, 1)

    @property
    def name_percent(self) -> float:
        """Share of bound names that are function words."""
        return 100 * len(self.flagged_names) / max(self.names, 1)


def figures(path: Path) -> Figures:
    """The figures of a file, or of all Python files below a folder."""
    result = Figures()
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for line, text in [*_docstrings(tree), *_comments(source)]:
            for sentence in _sentences(text):
                result.sentences += 1
                if len(sentence.split()) > MAX_WORDS or any(pattern.search(sentence) for pattern in PATTERNS):
                    result.flagged_sentences.append(f"{file}:{line}: {sentence}")
        for line, name in _bound_names(tree):
            result.names += 1
            if name in FUNCTION_WORDS:
                result.flagged_names.append(f"{file}:{line}: {name}")
    return result


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions, attributes and constants, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for statement, text in pairwise(body):
                if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr):
                    value = getattr(text.value, "value", None)
                    if isinstance(value, str):
                        yield text.lineno, value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments on consecutive lines as one text, with the first line."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(DIRECTIVES):
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield start, " ".join(block)
            block = []
        start = start if block else line
        block.append(token.string.lstrip("# "))
        last = line
    if block:
        yield start, " ".join(block)


def _sentences(text: str) -> Iterator[str]:
    """Sentences of at least three words; examples, tables and lists of parameters are left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [
            line
            for line in paragraph.splitlines()
            if not re.match(r"\s*(>>>|\.\.\.|[-+|=]{3,}|:param|:return|\||\$)", line)
        ]
        prose = " ".join(" ".join(lines).split())
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`(\"'])", prose):
            if len(sentence.split()) >= 3:
                yield sentence


def _bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of arguments, and of variables that are assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        counted = figures(Path(argument))
        print("\n".join(counted.flagged_sentences + counted.flagged_names))
        print(f"{argument}: {counted.sentence_percent:.1f} % of sentences, {counted.name_percent:.1f} % of names")
