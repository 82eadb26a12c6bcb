"""A protocol with everything that a description can say, which no other file of the program knows.

A depot keeps goods on shelves. Its body column is called ``goods``; a login has secrets, and names the client of its
whole connection; answers repeat a ticket; what was stored is delivered to who takes it; STORE has two dialects.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, is_in
from mqpcap.schema.fields import U8, U32, Array, Bytes, Length, Text
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import (
    Claim,
    ConnectionFacts,
    Derived,
    Envelope,
    Evidence,
    EvidenceRule,
    Layout,
    MessageQueue,
    Observation,
    Opening,
    Raw,
    Variant,
    Verdict,
)
from mqpcap.schema.requests import CorrelationRule, DeliveryRule, Fingerprints, Keys, RequestRule, Roles

MAGIC = 0xD9
NAMES = {1: "LOGIN", 2: "WELCOME", 3: "STORE", 4: "STORED", 5: "TAKE", 6: "TAKEN", 7: "REFUSED"}


class Depot(Message):
    """What every message begins with."""

    name = "Depot"
    fields_desc = [
        U8("magic", equals=MAGIC, column=None),
        U8("opcode", names=NAMES, column=None),
        Length("length", at_most=1 << 20),
    ]


class DepotLogin(Message):
    """Who one is."""

    name = "Depot LOGIN"
    fields_desc = [Text("user", prefix=1), Text("pass_phrase", prefix=1, secret=True)]


class DepotWelcome(Message):
    """The login is granted."""

    name = "Depot WELCOME"
    fields_desc = [Bytes("badge", prefix=1, secret=True)]


SHELF = (U32("ticket"), Text("shelf", prefix=1), Array("labels", Text("label", prefix=1), prefix=1))


class DepotStore(Message):
    """Goods for a shelf."""

    name = "Depot STORE"
    fields_desc = [*SHELF, Bytes("goods", prefix=2, body=True)]


class DepotStoreWide(Message):
    """The same with a longer length."""

    name = "Depot STORE, wide"
    fields_desc = [*SHELF, Bytes("goods", prefix=4, body=True)]


class DepotStored(Message):
    """The goods are on their shelf."""

    name = "Depot STORED"
    fields_desc = [U32("ticket")]


class DepotTake(Message):
    """Asks for goods."""

    name = "Depot TAKE"
    fields_desc = [U32("ticket"), Text("shelf", prefix=1)]


class DepotTaken(Message):
    """Goods from a shelf."""

    name = "Depot TAKEN"
    fields_desc = [U32("ticket"), Text("shelf", prefix=1), Bytes("goods", prefix=2, body=True)]


class DepotRefused(Message):
    """Why not."""

    name = "Depot REFUSED"
    fields_desc = [U32("ticket"), U8("code"), Text("why", prefix=1)]


def claims(opening: Opening) -> Claim:
    """A magic number as the first byte, on any port."""
    if opening.c2s_start and opening.c2s:
        return Claim(Verdict.YES if opening.c2s[0] == MAGIC else Verdict.NO, "c2s", "s2c")
    return Claim(Verdict.NO if opening.c2s_ended else Verdict.WAIT)


def observe(seen: Observation) -> None:
    """Who logs in."""
    for connection, _, _, _, (user,) in seen.each("user"):
        connection.state["user"] = user
        connection.is_final = True


def resolve(connection: Evidence) -> ConnectionFacts:
    """The client of the connection."""
    return ConnectionFacts(client_name=connection.state.get("user"))


def derive(raw: Raw) -> Mapping[str, pa.Array]:
    """How heavy the goods are."""
    _, length = raw.spans("goods")
    return {"weight": pa.array(length, mask=length < 0)}


def envelope(table: pa.Table) -> Mapping[str, pa.Array]:
    """The status of answers."""
    answers = is_in(table["direction"], "s2c")
    return {"status": case_when({"ok": answers, "error": is_in(table["op"], "REFUSED")})}


def keys(rows: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """Goods leave the shelf that they were put on."""
    key = prints(rows["f.shelf"]) * 1_000_003 + prints(rows["f.goods"])
    out, back = (np.flatnonzero(is_in(rows["op"], op)) for op in ("STORE", "TAKEN"))
    return Keys(out, key[out]), Keys(back, key[back])


def shelf(rows: pa.Table, _: NDArray[np.int64]) -> pa.Array:
    """The key as people read it."""
    return pc.cast(rows["f.shelf"], pa.string())


PROTOCOL = MessageQueue(
    name="depot",
    title="Depot",
    ports=(5100,),
    dialects=("narrow", "wide"),
    layouts=(
        Layout(
            "c2s", "c2s", {1: (DepotLogin,), 3: (DepotStore, Variant(DepotStoreWide, "wide")), 5: (DepotTake,)},
            header=Depot, op="opcode", names=NAMES, dialect="narrow",
        ),
        Layout(
            "s2c", "s2c", {2: (DepotWelcome,), 4: (DepotStored,), 6: (DepotTaken,), 7: (DepotRefused,)},
            header=Depot, op="opcode", names=NAMES, dialect="narrow",
        ),
    ),
    claims=claims,
    recognised="the first byte",
    envelope=Envelope(
        destination="shelf", correlation_id="ticket", body="goods", error_code="code", error_text="why",
        derive=envelope, derives=("status",),
    ),
    evidence=EvidenceRule(frozenset({1}), observe, resolve),
    rule=CorrelationRule(
        asks={
            "STORE": RequestRule("always", frozenset({"STORED"})),
            "TAKE": RequestRule("always", frozenset({"TAKEN"})),
        },
        errors=frozenset({"REFUSED"}),
        unasked=frozenset({"WELCOME"}),
        queues=(CorrelationRule(asks={"LOGIN": RequestRule("always", frozenset({"WELCOME"}))}),),  # it has no ticket
        tie=("ticket",),
        columns=("shelf", "goods"),
        deliveries=DeliveryRule("shelf_and_goods", keys, shelf),
    ),
    roles=Roles(
        publish=frozenset({"STORE"}), poll=frozenset({"TAKE"}), deliver=frozenset({"TAKEN"}),
        login=frozenset({"LOGIN"}),
    ),
    derived=(Derived("weight", pa.int64()),),
    derive=derive,
)  # fmt: skip
