"""Compiled modules of matchers: each constant and each attribute is declared once."""

import ast
import re
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "src/mqpcap/correlate"
DECLARED = re.compile(r"^(\w+) = cython\.declare\(", re.MULTILINE)
CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)


def test_constants_are_declared_in_one_module() -> None:
    """Others import them, and name their types in the .pxd file."""
    names = Counter(name for path in FOLDER.glob("*.py") for name in DECLARED.findall(path.read_text()))

    assert [name for name, count in names.items() if count > 1] == []


def test_numbers_of_classes_are_declared_in_the_pxd_file() -> None:
    """Their types of C; in the .py file a type of C is left only where `__init__` assigns nothing."""
    twice = []
    for path in FOLDER.glob("*.pxd"):
        classes = set(CLASS.findall(path.read_text()))
        for node in ast.parse(path.with_suffix(".py").read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                types = {ast.unparse(x.annotation): x for x in node.body if isinstance(x, ast.AnnAssign)}
                twice += [node.name for name in types if name.startswith("cython.")]

    assert twice == ["Publish"]
