"""What is secret is decided in one module: nothing else looks at what descriptions say of it, or writes the masks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqpcap.schema import fields, secrets

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "mqpcap"
HOME = "schema/secrets.py"
DECLARED = {"secret", "spare"}
"""What a description says of secrets: attributes of fields, columns, parts and protocols."""
MASKS = {"***", b"***"}
DESCRIPTIONS = {"schema/compiler.py", "schema/reference.py", "schema/refusals.py"}
"""They carry, list and check what is declared; they hide nothing."""


def deciding(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of what reads a declaration, but to hand it on as an argument; and of masks."""
    handed_on = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        for part in (argument, *(argument.elts if isinstance(argument, ast.Tuple) else ()))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            handed_on.update(map(id, node.value.elts))
        if isinstance(node, ast.Attribute) and node.attr in DECLARED and isinstance(node.ctx, ast.Load):
            if id(node) not in handed_on:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and node.value in MASKS:
            yield node.lineno, repr(node.value)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_secrets_are_decided_in_one_module(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    found = list(deciding(ast.parse(path.read_text())))

    if name == HOME:
        assert len(found) >= 10
    elif name not in DESCRIPTIONS:
        assert found == []


@pytest.mark.parametrize("line", ["x = '***' if kind.hidden else y", "kept = column.secret and not shown"])
def test_another_place_would_be_found(line: str) -> None:
    assert list(deciding(ast.parse(line)))


def test_the_items_of_a_list_are_masked_where_scapy_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = fields.Array("keys", fields.Bytes("key", prefix=1, secret=True))

    assert keys.i2repr(None, [b"s3cret", b"other"]) == "[***, ***]"
    monkeypatch.setattr(secrets, "are_shown", lambda: True)
    assert keys.i2repr(None, [b"s3cret", b"other"]) == "[b's3cret', b'other']"
