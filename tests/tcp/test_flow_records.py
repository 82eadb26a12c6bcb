"""The records of the flow table are the same for C, Python and NumPy."""

import ast
import ctypes
import inspect
from pathlib import Path

import numpy as np
import pytest

from mqpcap.tcp import flow_records
from mqpcap.tcp.flow_records import FlowRecord, PieceRecord, SideRecord

C_NAMES = {"longlong": ctypes.c_int64, "int": ctypes.c_int32, "short": ctypes.c_int16, "schar": ctypes.c_int8}


def c_structs() -> dict[str, list[tuple[str, type]]]:
    """What flow_table.py declares with cython.struct: name and type of each field."""
    source = Path(inspect.getfile(flow_records)).with_name("flow_table.py").read_text()
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("cython.struct("):
            assert isinstance(node.targets[0], ast.Name)
            assert isinstance(node.value, ast.Call)
            fields = [(word.arg, C_NAMES[ast.unparse(word.value).split(".")[1]]) for word in node.value.keywords]
            found[node.targets[0].id] = fields
    return found


@pytest.mark.parametrize(("name", "record"), [("_Flow", FlowRecord), ("_Side", SideRecord), ("_Piece", PieceRecord)])
def test_c_declares_the_same_fields(name: str, record: type[ctypes.Structure]) -> None:
    assert c_structs()[name] == record._fields_


@pytest.mark.parametrize("record", [FlowRecord, SideRecord, PieceRecord])
def test_a_record_has_no_padding_whose_bytes_are_anything(record: type[ctypes.Structure]) -> None:
    dtype = np.dtype(record)

    assert sum(dtype[name].itemsize for name in dtype.names or ()) == dtype.itemsize == ctypes.sizeof(record)
