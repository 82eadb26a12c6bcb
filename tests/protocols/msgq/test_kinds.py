"""msgq's kinds: what they show and draw, and what a tree consists of."""

import json

from running import script

from mqpcap.protocols.msgq import kinds, tree
from mqpcap.protocols.msgq.kinds import Json, Tree


def test_a_tree_is_shown_as_json_and_what_is_none_as_bytes() -> None:
    pairs = kinds.encode({"a": [1]}, True)

    assert Tree("tree").i2repr(None, pairs) == Tree("tree").i2repr(None, kinds.MAGIC + pairs) == '{"a":[1]}'
    assert Tree("tree").i2repr(None, b"\1") == repr(b"\1")


def test_what_is_drawn_is_read() -> None:
    assert tree.text(Tree("tree").draw()) is not None
    assert isinstance(json.loads(Json("header").draw()), dict)


def test_inside_a_tree() -> None:
    """Where each part begins and how long it is: ``01 61 | 23 04 | 26 01 37 | 04`` and ``01 62 | 21 01 78``."""
    data = bytes.fromhex("0161 2304 260137 04 0162 210178")

    found = [(x.offset, x.length, x.depth, x.name, x.value, x.meaning) for x in Tree("tree").inside(data)]

    assert found == [
        (0, 2, 0, "key", "a", None),
        (2, 6, 0, "a", None, "LIST of 4 bytes"),
        (4, 3, 1, "[0]", b"7", "INT"),
        (7, 1, 1, "[1]", None, "NULL"),
        (8, 2, 0, "key", "b", None),
        (10, 3, 0, "b", b"x", "DATA"),
    ]


def test_inside_stops_where_no_pair_is() -> None:
    assert [x.name for x in Tree("tree").inside(bytes.fromhex("0161 04 05"))] == ["key", "a"]


def test_readers_and_their_library_are_imported_with_the_first_message() -> None:
    code = (
        "import sys; from mqpcap.protocols import protocols; protocols()\n"
        "print([m for m in sys.modules if m.split('.')[-1] in ('msgspec', 'tree', 'documents')])"
    )

    assert script(code).stdout == "[]\n"
