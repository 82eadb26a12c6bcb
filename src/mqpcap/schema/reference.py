"""The reference of a protocol for people: each operation with its fields in wire order, and its answers.

In: a `MessageQueue`. Out: plain values, and lines of text or Markdown. Called by: ``mqpcap protocols NAME``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqpcap.schema.fields import Array, Bits, If, Kind, Nested, Prefix, Sized
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import MessageQueue

COLUMNS = ("field", "type", "when", "column", "about")


def operations_of(protocol: MessageQueue) -> list[dict[str, Any]]:
    """Each form of a message: operation, direction, class, dialect, fields, and the operations that answer it."""
    asks = protocol.rule.asks if protocol.rule is not None else {}
    entries: dict[tuple[object, ...], dict[str, Any]] = {}
    for layout in protocol.layouts:
        for op, variants in layout.variants.items():
            for variant in variants:
                name, ask = layout.names.get(op), asks.get(layout.names.get(op) or "")
                head = [] if layout.header is None else fields_of(layout.header)
                entry = {
                    "operation": name, "number": None if op < 0 else int(op), "direction": layout.direction,
                    "class": variant.message.__name__, "dialect": variant.dialect or layout.dialect,
                    "answer": None if ask is None or layout.direction == "s2c" else ask.answer,
                    "answered_by": sorted(ask.by) if ask is not None and layout.direction == "c2s" else [],
                    "fields": [*head, *fields_of(variant.message)],
                }  # fmt: skip
                entries.setdefault((op, layout.direction, variant.message), entry)
    return list(entries.values())


def remembered(protocol: MessageQueue) -> list[str]:
    """A sentence for each text that connections remember."""
    return [
        f"{x.text}: where it is empty, the last that the side sent with the same {x.key}"
        + (f" ({x.item[0]} {x.item[1]})" if x.item else "")
        for x in protocol.remembered
    ]


def fields_of(message: type[Message], depth: int = 0) -> list[dict[str, Any]]:
    """The fields of a class in wire order, those of lists and nested messages after them."""
    rows: list[dict[str, Any]] = []
    for field in message.fields_desc:
        if isinstance(field, Prefix):
            continue
        kind, conditions = field, []
        while isinstance(kind, If):
            conditions.append(_condition(kind))
            kind = kind.kind
        about = [f"in {kind.unit}"] if kind.unit else []
        about += ["secret"] * kind.secret + ["body"] * kind.body
        names = {str(number): name for number, name in (kind.names or {}).items()}
        rows.append(
            {
                "field": "  " * depth + kind.name,
                "type": _type(kind),
                "when": " and ".join(conditions) or None,
                "column": field.column,
                "about": ", ".join(about) or None,
                "values": names,
            }
        )
        inner = kind.message if isinstance(kind, Nested) else getattr(kind, "item", None)
        if isinstance(inner, type):
            rows += fields_of(inner, depth + 1)
    return rows


def _type(kind: Kind) -> str:
    """The kind of a field, with what measures it."""
    name = type(kind).__name__
    if isinstance(kind, Array) and isinstance(kind.item, Kind):
        name += f" of {type(kind.item).__name__}"
    words = [f"of {kind.of}, mask {kind.mask << kind.shift:#x}"] if isinstance(kind, Bits) else []
    if isinstance(kind, Sized):
        words += [f"{kind.count_word} in {kind.sized_by}"] if kind.sized_by else []
        words += [f"{kind.count_word} of {kind.prefix} bytes in front"] if isinstance(kind.prefix, int) else []
    bounds = ("size", "equals", "at_least", "at_most") if isinstance(kind, Sized) else ("equals", "at_least", "at_most")
    limits = {word: getattr(kind, word, None) for word in bounds}
    if limits["equals"] is not None:
        limits |= {"at_least": None, "at_most": None}
    words += [f"{word.replace('_', ' ')} {value}" for word, value in limits.items() if value is not None]
    return name + (f" ({', '.join(words)})" if words else "")


def _condition(field: If) -> str:
    if field.left is not None:
        return f"{field.left} bytes are left"
    if field.follows is not None:
        return f"{field.follows.hex()} follows"
    if field.has is not None:
        return f"{field.when} has {field.has:#x}"
    if field.equals is not None:
        return f"{field.when} is {field.equals!r}"
    return f"{field.when} is not {field.unless!r}" if field.unless is not None else f"{field.when} is not 0"


def lines(entry: Mapping[str, Any], markdown: bool = False) -> Iterator[str]:
    """The reference of a protocol, as ``mqpcap.protocols(NAME)`` has it, in lines of text or Markdown."""
    yield f"# {entry['name']}: {entry['title']}" if markdown else f"{entry['name']}: {entry['title']}"
    yield f"TCP port {', '.join(map(str, entry['ports'])) or 'of no fixed number'}. {entry['recognised']}"
    yield from (f"Remembered: {sentence}." for sentence in entry["remembered"])
    for message in entry["messages"]:
        number = "" if message["number"] is None else f" ({message['number']})"
        title = f"{message['operation'] or message['class']}{number}, {message['direction']}, {message['class']}"
        yield from ("", f"## {title}" if markdown else title)
        if message["answer"] is not None:
            answers = f" by {', '.join(message['answered_by'])}" if message["answered_by"] else ""
            yield f"Answered: {message['answer']}{answers}."
        yield from _rows(message["fields"], markdown)


def _rows(fields: Sequence[Mapping[str, Any]], markdown: bool) -> Iterator[str]:
    if markdown:
        yield from ("", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|")
    for row in fields:
        values = ", ".join(f"{number} {name}" for number, name in row["values"].items())
        about = "; ".join(filter(None, (row["about"], values)))
        if markdown:
            cells = (row["field"].replace("  ", "&nbsp;&nbsp;"), row["type"], row["when"], row["column"], about)
            yield f"| {' | '.join((x or '').replace('|', chr(92) + '|') for x in cells)} |"
        else:
            when, column = row["when"] and f"if {row['when']}", row["column"] and f"column {row['column']}"
            yield f"  {row['field']:<24} {'; '.join(filter(None, (row['type'], when, column, about)))}"
