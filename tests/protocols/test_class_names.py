"""Layer classes made by calls stand in their module as class statements would have put them there."""

import pickle

import pytest

from mqpcap.protocols import modules
from mqpcap.schema.fields import U8
from mqpcap.schema.message import Message, message_class


@pytest.mark.parametrize("protocol", modules())
def test_every_class_stands_under_its_own_name(protocol: str) -> None:
    """Names are made of operations and variants; pickle and ``import *`` go by them."""
    public = {name: x for name, x in vars(modules()[protocol]).items() if not name.startswith("_")}
    classes = {name: x for name, x in public.items() if isinstance(x, type) and issubclass(x, Message)}

    assert {name: cls.__name__ for name, cls in classes.items()} == {name: name for name in classes}
    assert [pickle.loads(pickle.dumps(cls)) for cls in classes.values()] == list(classes.values())


def test_a_class_like_another_has_its_fields_and_is_found_as_it() -> None:
    first = message_class(__name__, "First", "the first", "Says hello.", U8("count"))
    second = message_class(__name__, "Second", "the second", "The same.", like=first, count=7)

    assert (second().name, second.__doc__, bytes(second())) == ("the second", "The same.", b"\x07")
    assert first in second()
    assert bytes(first()) == b"\0"
