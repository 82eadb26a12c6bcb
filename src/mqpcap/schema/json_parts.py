"""The parts of a JSON text, at their offsets."""

import re
from collections.abc import Iterator

from mqpcap.schema.fields import InnerPart

_PART = re.compile(
    rb'"([^"\\]*(?:\\.[^"\\]*)*)"(?=([ \t\r\n]*:)?)|(-?[0-9][0-9.eE+-]*)|(?:true|false|null|[][{},: \t\r\n])+',
    re.DOTALL,
)


def json_parts(data: bytes) -> Iterator[InnerPart]:
    """The parts of a text that is JSON, each by the key of the outermost object that it is under."""
    depth, key = 0, ""
    for part in _PART.finditer(data):
        start, end = part.span()
        if part[1] is not None:
            is_key = part[2] is not None
            if is_key and depth == 1:
                key = part[1].decode("utf-8", "replace")
            yield InnerPart(start, 1)
            yield InnerPart(start + 1, end - start - 2, key, "key" if is_key else "text")
            yield InnerPart(end - 1, 1)
        elif part[3] is not None:
            yield InnerPart(start, end - start, key, "number")
        else:
            yield InnerPart(start, end - start)
            depth += part[0].count(b"{") + part[0].count(b"[") - part[0].count(b"}") - part[0].count(b"]")
