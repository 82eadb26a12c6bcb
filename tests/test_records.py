"""Records behave as dataclasses do, but for being frozen."""

import dataclasses
import pickle
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from mqpcap.records import dataclass as record


@record(frozen=True, slots=True)
class Place:
    row: int
    name: str = "a"
    tags: list[str] = dataclasses.field(default_factory=list)


@record(slots=True)
class Count:
    value: int = 0


@record(frozen=True, slots=True, eq=False)
class Marker:
    value: int = 0


@record(frozen=True, slots=True)
class Nothing:
    pass


def test_a_record_is_built_shown_and_compared_as_a_dataclass() -> None:
    Standard = dataclasses.make_dataclass(
        "Place",
        [("row", int), ("name", str, "a"), ("tags", list, dataclasses.field(default_factory=list))],
        frozen=True,
    )

    assert repr(Place(1, tags=["b"])) == repr(Standard(1, tags=["b"]))
    assert Place(1) == Place(1, "a", []) != Place(1, "b")
    assert Place(1) == ANY
    others: list[object] = [Place(1), 1]
    assert Count(1) not in others
    assert Marker() != Marker()
    assert repr(Nothing()) == "Nothing()"


def test_a_record_is_hashed_if_it_is_frozen() -> None:
    assert len({Place(1, tags=()), Place(1, tags=())}) == 1  # type: ignore[arg-type]
    assert len({Marker(), Marker()}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Count())


def test_a_record_has_slots_is_replaced_and_pickled() -> None:
    changed: Any = dataclasses.replace(Place(1), row=2)

    assert pickle.loads(pickle.dumps(changed)) == Place(2)
    assert dataclasses.asdict(changed) == {"row": 2, "name": "a", "tags": []}
    with pytest.raises(AttributeError):
        changed.other = 1
