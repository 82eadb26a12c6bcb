"""Names of Wireshark for either end of a message, protocols as tests, and times since the start."""

import pytest

import mqpcap
from mqpcap.query import query

QOS1 = "pcaps/blipmq/qos1.pcap"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("ip.addr == 10.0.0.1", "src_ip == 10.0.0.1 or dst_ip == 10.0.0.1"),
        ("ip.addr != 10.0.0.1", "src_ip != 10.0.0.1 and dst_ip != 10.0.0.1"),
        ("tcp.port in {80, 81}", "src_port in (80, 81) or dst_port in (80, 81)"),
        ("blipmq", "protocol == blipmq"),
        ("not fq", "not protocol == fq"),
        ("blipmq.op == PUBLISH", "protocol == blipmq and op == PUBLISH"),
        ("frame.time_relative > 1.5", "ts > +1.5s"),
    ],
)
def test_a_test_of_wireshark_is_a_test_of_columns(text: str, meaning: str) -> None:
    assert query(text).tree == query(meaning).tree


def test_every_message_of_a_connection_has_its_port() -> None:
    """Port 39290 is the first client's: 10 messages from it, 7 to it, as its truth file says."""
    rows = mqpcap.read(QOS1, filter="tcp.port == 39290", columns=["src_port", "dst_port"]).to_pylist()

    assert {tuple(sorted(row.values())) for row in rows} == {(5555, 39290)}
    assert len(rows) == 17


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("blipmq.qos == AtLeastOnce", "blipmq.qos == 1"),
        ("qos in {atmostonce, 1}", "qos in (0, 1)"),
        ("fq.bind_flags == permanent", "fq.bind_flags == 272"),
    ],
)
def test_names_of_numbers_are_values_as_in_wireshark(text: str, meaning: str) -> None:
    """FrameQoS (frame.rs) and FQ_BIND_PERM (fq.h)."""
    assert query(text).tree == query(meaning).tree


def test_a_name_with_a_comma_is_one_value() -> None:
    (flags,) = (field for field in mqpcap.fields("fq") if field.name == "fq.bind_flags")

    assert all(value.split()[0].isdigit() for value in flags.values)
