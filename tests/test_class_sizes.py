"""Classes fit into a head: none is above 500 lines."""

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "mqpcap"
MAX_LINES = 500


def test_no_class_is_above_500_lines() -> None:
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    sizes: Counter[str] = Counter()
    for node in classes:
        sizes[node.name] = max(sizes[node.name], (node.end_lineno or 0) - node.lineno + 1)

    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}
