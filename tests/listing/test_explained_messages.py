"""Messages explained by packet, and what of them must not be shown."""

from message_rows import capture_of

from mqpcap.listing.explained_messages import GivenBytes, PacketName, StreamPlace, explain_bytes, explain_captured
from mqpcap.protocols import protocols
from mqpcap.reading import Choices, Outcome


def test_a_packet_and_an_offset_name_the_same_message() -> None:
    capture, outcome = capture_of("blipmq/qos1"), Outcome(Choices())
    (by_packet,), _ = explain_captured([capture], PacketName(12), outcome, lambda count: None)
    assert by_packet.row is not None
    place = StreamPlace("c1", "c2s", int(str(by_packet.row.message["stream_offset"])) + 1)
    (by_offset,), _ = explain_captured([capture], place, outcome, lambda count: None)

    assert by_offset.as_json() == by_packet.as_json()


def test_a_file_that_is_not_of_the_capture_is_a_miss() -> None:
    found = explain_captured(
        [capture_of("blipmq/qos1")], PacketName(1, "b.pcap"), Outcome(Choices()), lambda count: None
    )

    assert found == ([], ["there is no file b.pcap"])


def test_a_secret_shows_only_if_it_is_asked_for() -> None:
    (auth,), _ = explain_captured([capture_of("blipmq/qos1")], PacketName(8), Outcome(Choices()), lambda count: None)
    digits = []
    for choices in (Choices(), Choices(show_secrets=True)):
        message = explain_bytes(GivenBytes(auth.result.data, protocols()["blipmq"], "c2s", None), choices)
        assert message.result.best is not None
        (key,) = [item for item in message.result.best.items if item.secret]
        digits.append(message.shown(key)[1])

    assert digits[0] == "***"
    assert bytes.fromhex(digits[1]) in auth.result.data
