"""Bytes of messages as hex, and what of them must not be seen."""

from running import run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_hex_shows_the_bytes_of_the_message() -> None:
    said = run("show", "-q", "-x", "-c", "1", QOS1).stdout.splitlines()

    assert said[1] == "    0000  00 00 00 0b 01 00 00 00  00 00 00 00 01 00 01     ..............."
