"""The state of a recording as data: its objects as JSON, followed by the bytes of its arrays.

In: the stages of a pipeline between two windows. Out: bytes, and the stages again. Called by: ``recordings``.

A state may have been written by another user, so reading it never calls what it names. The JSON is a list of objects,
each with its kind and content; ``[n]`` refers to object n. Kinds are containers, arrays, Arrow tables, objects of
protocol descriptions by name, and objects of the classes that `_allowed` lists, created without ``__init__``
and filled by attribute. Compiled classes check the type of each attribute.
"""

import copyreg
import json
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqpcap.arrays import single_array
from mqpcap.correlate.rules import request_groups
from mqpcap.errors import CaptureError
from mqpcap.protocols import protocols
from mqpcap.tables.messages import fingerprints

STATE_HEADER: Final = b"mqpcap state 11\n"
"""Begins every dumped state. The number changes with each release that changes a class or attribute in it."""
MAX_STATE_BYTES: Final = 1 << 30
"""Bytes of a state, besides ``--max-memory``; a larger state is not read."""
_PACKAGES: Final = (
    "mqpcap.tcp.", "mqpcap.tls.", "mqpcap.websocket", "mqpcap.decode.", "mqpcap.correlate.", "mqpcap.schema.protocol",
)  # fmt: skip
_CLASSES: Final = frozenset(
    {
        "mqpcap.correlate:Correlation", "mqpcap.hooks:StageHooks", "mqpcap.options:Options",
        "mqpcap.pipeline:Pipeline", "mqpcap.selection:StageSelection",
        "mqpcap.tables.connections:ConnectionRows", "mqpcap.tables.messages:RowPolicy",
        "mqpcap.tables.pairing:Pairing", "mqpcap.tables.unrecognised_servers:UnrecognisedServers",
    }
)  # fmt: skip
"""Classes of a state outside of _PACKAGES."""
_MAKERS: Final = frozenset(
    {
        "mqpcap.tcp.flow_table:FlowTable", "mqpcap.tcp.flow_table:FastPath", "mqpcap.decode.scanning:Scanners",
        "mqpcap.decode.frames:FoundMessages", "mqpcap.decode.message_buffer:PacketIndex",
        "mqpcap.decode.message_buffer:ChunkPackets",
    }
)  # fmt: skip
"""Called with the values that their ``__reduce__`` names."""
_PRIMITIVES: Final = frozenset({int, float, str, bool, type(None)})
_CONTAINERS: Final[Mapping[str, Callable[[Iterable[Any]], Any]]] = {
    "list": list, "deque": deque, "set": set, "tuple": tuple, "frozenset": frozenset
}  # fmt: skip
_MAPPINGS: Final = {"dict": dict, "Counter": Counter}
_FINGERPRINTS: Final = getattr(fingerprints((0, 0)), "func")  # noqa: B009 - its type names no partial
_COMPILED: Final = "__pyx_unpickle_"
"""Begins the name of the function of Cython that creates an object of a compiled class."""


@cache
def _shared_objects() -> dict[tuple[str, ...], object]:
    """Objects of protocol descriptions, by name; a dumped state refers to them by name."""
    objects: dict[tuple[str, ...], object] = {}
    for name, protocol in protocols().items():
        objects[name, "protocol"] = protocol
        if (rule := protocol.rule) is not None:
            objects |= {(name, "rule"): rule, (name, "deliveries"): rule.deliveries}
            for i, group in enumerate(request_groups(rule)):
                objects |= {(name, "group", str(i)): group, (name, "tables", str(i)): group.tables}
    return {name: item for name, item in objects.items() if item is not None}


def _allowed(name: str, makers: bool = False) -> Any:
    """The class of a name, or the maker: also an enumeration. Raises ValueError for any other name."""
    module, _, attribute = name.partition(":")
    if name not in _CLASSES | _MAKERS and not module.startswith(_PACKAGES):
        raise ValueError(f"{name} is not part of a state")
    member = getattr(import_module(module), attribute)
    is_class = isinstance(member, type) and member.__module__ == module
    is_maker = name in _MAKERS or (is_class and issubclass(member, Enum))
    if is_maker if makers else is_class:
        return member
    raise ValueError(f"{name} is not part of a state")


def _name(item: Any) -> str:
    return f"{item.__module__}:{item.__qualname__}"


def dump_state(state: object) -> bytes:
    """A state as bytes, without caches. Raises ValueError for an object that no state may have."""
    writer = _Writer()
    writer.value(state)
    text = json.dumps(writer.entries, separators=(",", ":")).encode()
    return b"".join([STATE_HEADER, len(text).to_bytes(8, "little"), text, *writer.buffers])


def load_state(content: bytes) -> Any:
    """Reads a state from the bytes of `dump_state`. Raises CaptureError for a damaged state or another release."""
    if not content.startswith(STATE_HEADER):
        raise CaptureError("its state is of another release of mqpcap; --finish with that release, or a new lake")
    try:
        begin = len(STATE_HEADER) + 8
        size = int.from_bytes(content[len(STATE_HEADER) : begin], "little")
        reader = _Reader(json.loads(content[begin : begin + size]), memoryview(content)[begin + size :])
        return reader.value([0])
    except Exception as error:  # whatever a foreign file makes of our classes
        raise CaptureError(
            f"its state is damaged ({type(error).__name__}); export its captures to a new lake"
        ) from error


def read_state(path: Path, max_bytes: int) -> bytes:
    """The bytes of a state in a file. Raises CaptureError for a file with more bytes, OSError as reading does."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > max_bytes:
            raise CaptureError(f"its state has {size_bytes} bytes, more than {max_bytes}; try a larger --max-memory")
        return file.read(max_bytes)


class _Writer:
    """Objects to entries and buffers."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.buffers: list[bytes] = []
        self._size_bytes = 0
        self._index: dict[int, int] = {}
        self._written: list[object] = []
        """Keeps all objects alive, so that their ids stay unique."""
        self._shared = {id(item): name for name, item in _shared_objects().items()}

    def value(self, item: Any) -> Any:
        """An object as JSON: itself, or a reference to its entry."""
        if type(item) in _PRIMITIVES:
            return item
        index = self._index.get(id(item))
        if index is None:
            index = self._index[id(item)] = len(self.entries)
            self.entries.append([])
            self._written.append(item)
            self.entries[index] = self._entry(item)
        return [index]

    def _entry(self, item: Any) -> list[Any]:
        if name := self._shared.get(id(item)):
            return ["shared", *name]
        kind, class_ = type(item).__name__, type(item)
        if class_ in _CONTAINERS.values():
            return [kind, *map(self.value, item)]
        if class_ in _MAPPINGS.values():
            return [kind, *(self.value(x) for pair in item.items() for x in pair)]
        if isinstance(item, bytes | bytearray | memoryview):
            return ["bytearray" if isinstance(item, bytearray) else "bytes", *self._buffer(item)]
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            dtype = np.lib.format.dtype_to_descr(item.dtype)
            return ["ndarray", dtype, item.shape, *self._buffer(np.ascontiguousarray(item).tobytes())]
        if isinstance(item, array):
            return ["array", item.typecode, *self._buffer(item.tobytes())]
        if isinstance(item, pa.Table | pa.Array):
            table = item if isinstance(item, pa.Table) else pa.table({"": item})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            return ["table" if table is item else "column", *self._buffer(sink.getvalue().to_pybytes())]
        if isinstance(item, partial) and item.func is _FINGERPRINTS and not item.keywords:
            return ["fingerprints", *item.args[0]]
        return self._object(item)

    def _object(self, item: Any) -> list[Any]:
        if isinstance(item, tuple):
            _allowed(_name(type(item)))
            return ["record", _name(type(item)), *map(self.value, item)]
        function, arguments, state, *iterators = (*item.__reduce_ex__(4), None, None, None)[:5]
        if any(x is not None for x in iterators):
            raise ValueError(f"{type(item)} is not part of a state")
        if function.__name__.startswith(_COMPILED):
            class_, checksum, inner = arguments
            _allowed(_name(class_))
            return ["compiled", _name(class_), checksum, self.value(state if inner is None else inner)]
        if function is not copyreg.__newobj__:  # type: ignore[attr-defined]
            _allowed(_name(function), makers=True)
            return ["made", _name(function), *map(self.value, arguments)]
        (class_,) = arguments
        _allowed(_name(class_))
        if hasattr(class_, "__setstate__"):
            return ["state", _name(class_), self.value(state)]
        parts = state if isinstance(state, tuple) else (state,)
        attributes = {name: self.value(x) for part in parts if part for name, x in part.items()}
        return ["object", _name(class_), attributes]

    def _buffer(self, content: bytes | bytearray | memoryview) -> tuple[int, int]:
        self.buffers.append(bytes(content))
        begin, self._size_bytes = self._size_bytes, self._size_bytes + len(self.buffers[-1])
        return begin, len(self.buffers[-1])


class _Reader:
    """Entries and the bytes of buffers to objects; damaged entries raise any error."""

    def __init__(self, entries: list[Any], content: memoryview) -> None:
        self._entries, self._content = entries, content
        self._made: dict[int, Any] = {}

    def value(self, item: Any) -> Any:
        """The object that JSON stands for."""
        if not isinstance(item, list):
            return item
        (index,) = item
        if index not in self._made:
            if index < 0:
                raise IndexError(index)
            self._made[index] = self._item(index, *self._entries[index])
        return self._made[index]

    def _item(self, index: int, kind: str, *content: Any) -> Any:
        if kind in ("tuple", "frozenset"):
            return _CONTAINERS[kind](map(self.value, content))
        if kind in _CONTAINERS or kind in _MAPPINGS:
            return self._filled(index, kind, content)
        if kind in ("object", "state", "compiled"):
            return self._object(index, kind, *content)
        if kind == "record":
            return _allowed(content[0])._make(map(self.value, content[1:]))
        if kind == "made":
            return _allowed(content[0], makers=True)(*map(self.value, content[1:]))
        if kind == "shared":
            return _shared_objects()[content]
        if kind == "fingerprints":
            seeds = int(content[0]), int(content[1])
            return fingerprints(seeds)
        *described, begin, size = content
        data = self._content[begin : begin + size]
        if begin < 0 or len(data) != size:
            raise IndexError(begin)
        return self._array(kind, described, data)

    def _filled(self, index: int, kind: str, content: tuple[Any, ...]) -> Any:
        """A container that may contain itself."""
        if kind in _MAPPINGS:
            mapping = self._made[index] = _MAPPINGS[kind]()
            for key, item in zip(content[::2], content[1::2], strict=True):
                mapping[self.value(key)] = self.value(item)
            return mapping
        container = self._made[index] = _CONTAINERS[kind](())
        (container.update if kind == "set" else container.extend)(map(self.value, content))
        return container

    def _object(self, index: int, kind: str, name: str, *content: Any) -> Any:
        class_ = _allowed(name)
        if kind == "compiled":
            unpickle = getattr(import_module(class_.__module__), _COMPILED + class_.__name__)
            item = self._made[index] = unpickle(class_, content[0], None)
            state = self.value(content[1])
            if len(state) < len(_compiled_state(item)):
                raise ValueError(name)
            item.__setstate_cython__(state)
            return item
        item = self._made[index] = class_.__new__(class_)
        if kind == "state":
            item.__setstate__(self.value(content[0]))
            return item
        for attribute, x in content[0].items():
            object.__setattr__(item, attribute, self.value(x))
        return item

    @staticmethod
    def _array(kind: str, described: list[Any], data: memoryview) -> Any:
        if kind == "bytes":
            return bytes(data)
        if kind == "bytearray":
            return bytearray(data)
        if kind == "ndarray":
            dtype, shape = np.lib.format.descr_to_dtype(_descr(described[0])), tuple(described[1])
            if dtype.hasobject:
                raise TypeError(kind)
            return np.frombuffer(data, dtype).reshape(shape).copy()
        if kind == "array":
            return array(described[0], bytes(data))
        if kind in ("table", "column"):
            table = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
            table.validate(full=True)
            return table if kind == "table" else single_array(table[0])
        raise ValueError(kind)


def _compiled_state(item: Any) -> tuple[Any, ...]:
    """The attributes of an object of a compiled class, as Cython orders them."""
    reduced = item.__reduce_cython__()
    state: tuple[Any, ...] = reduced[1][2] if reduced[1][2] is not None else reduced[2]
    return state


def _descr(described: Any) -> Any:
    """A dtype in the form of NumPy, from JSON, which has no tuples."""
    if isinstance(described, str):
        return described
    return [(name, _descr(inner), *map(tuple, shape)) for name, inner, *shape in described]
