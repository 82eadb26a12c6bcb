"""The bytes of a row: what explains them, and what of them is secret."""

import pytest
from message_rows import merged

from mqpcap.decode.detection import DecodeAs
from mqpcap.listing import explanation
from mqpcap.listing.row_bytes import best_attempt, bytes_after_hole, explanation_of, row_secrets
from mqpcap.reading import Choices


@pytest.mark.parametrize(
    ("name", "op", "secret"),
    [("blipmq/qos1", "AUTH", b"dev-key"), ("flymq/login", "AUTH", b"adminpw-1"), ("fq/session", "auth", b"watchpw")],
)
def test_what_is_hidden_of_a_login_is_its_secret(name: str, op: str, secret: bytes) -> None:
    (row, *_) = [row for row in merged(name, with_bytes=True) if row.message["op"] == op and secret in row.data]

    veil = row_secrets(row, Choices())

    assert veil is not None
    assert {row.data[begin:end] for begin, end in veil.spans} == {secret}
    assert row_secrets(row, Choices(show_secrets=True)) is None


def test_a_message_with_a_flaw_is_masked_after_its_header_if_it_may_be_another() -> None:
    """BlipMQ's header has 13 bytes, msgq's 4. msgq has no secrets, but Decode As may have named the wrong protocol."""
    for name, choices, spans_begin in (
        ("blipmq/errors", Choices(), 13),
        ("faults/msgq_snapped", Choices(), None),
        ("faults/msgq_snapped", Choices((DecodeAs(9912, "msgq"),)), 4),
    ):
        rows = [row for row in merged(name, with_bytes=True) if row.message["flaw"] is not None]
        assert rows
        for veil in (row_secrets(row, choices) for row in rows):
            assert (None if veil is None else veil.spans[0][0]) == spans_begin


def test_an_explanation_agrees_with_the_row() -> None:
    for row in merged("flymq/core", with_bytes=True):
        best = explanation_of(row).best

        assert best is not None and best.fits
        assert (best.dialect or row.message["dialect"], best.operation) == (row.message["dialect"], row.message["op"])
        assert best.frame_len == len(row.data)
        assert bytes_after_hole(row) == 0


@pytest.mark.parametrize(
    "name", ["blipmq/qos1", "fq/session", "fq/peers", "flymq/groups", "kokaq/doc_session", "kokaq/go1_session",
             "msgq/flat_typed", "msgq/json_session", "faults/blipmq_lost", "blipmq/errors"],
)  # fmt: skip
def test_the_best_attempt_is_that_of_the_explanation_and_no_other_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other variants are read only for messages with a flaw: they cost up to seven times as much."""
    rows = list(merged(name, with_bytes=True))
    best = [explanation_of(row, inside=False).best for row in rows]
    walked: list[object] = []
    with_body = explanation._with_body
    monkeypatch.setattr(explanation, "_with_body", lambda *args: walked.append(args) or with_body(*args))

    assert [best_attempt(row) for row in rows if row.message["flaw"] is None] == [
        attempt for attempt, row in zip(best, rows, strict=True) if row.message["flaw"] is None
    ]
    assert len(walked) == sum(row.message["flaw"] is None for row in rows)
