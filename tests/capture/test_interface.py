"""Packets of a network interface: of loopback, where the process may listen to it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from capture_files import packets

from mqpcap.capture.interface import Interface
from mqpcap.errors import CaptureError


@contextmanager
def listening(bpf: str | None = None) -> Iterator[Interface]:
    try:
        interface = Interface("lo", bpf)
    except CaptureError as error:
        pytest.skip(str(error))
    with closing(interface):
        yield interface


def say(port: int, *bodies: bytes) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        for body in bodies:
            sender.sendto(body, ("127.0.0.1", port))


@contextmanager
def ports() -> Iterator[tuple[int, int]]:
    """Two ports of ours that take datagrams."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        for own in (one, two):
            own.bind(("127.0.0.1", 0))
        yield one.getsockname()[1], two.getsockname()[1]


def bodies(interface: Interface) -> list[bytes]:
    """The payloads of the datagrams that are captured: after Ethernet, IP and UDP (14 + 20 + 8 bytes)."""
    capture = interface.capture()
    return [data[42:] for _, data, *_ in packets(list(capture.windows()))]


def test_what_comes_until_it_is_stopped_is_captured_once_each() -> None:
    with ports() as (port, other), listening(f"udp and dst port {port}") as interface:
        say(port, b"one", b"two")
        say(other, b"not asked for")
        interface.stop()

        assert bodies(interface) == [b"one", b"two"]
        assert interface.is_stopped
        assert (interface.failure, interface.dropped_count()) == (None, 0)


def test_packets_come_while_the_interface_is_listened_to() -> None:
    with ports() as (port, _), listening(f"udp and dst port {port}") as interface:

        def speak() -> None:
            say(port, b"late")
            interface.stop()

        threading.Timer(0.1, speak).start()

        assert bodies(interface) == [b"late"]


def test_a_capture_ends_at_its_time() -> None:
    with listening("udp port 9") as interface:
        capture = interface.capture("mine", until_s=time.monotonic() + 0.05)

        assert list(capture.windows()) == []
        assert (capture.files, interface.is_stopped) == (("mine",), False)


def test_a_missing_interface_is_reported_with_those_that_exist() -> None:
    with listening():
        pass
    with pytest.raises(CaptureError, match=r"^nosuch0: there is no such interface; there are .*lo"):
        Interface("nosuch0")


def test_what_is_no_filter_is_a_wrong_value() -> None:
    with listening():
        pass
    with pytest.raises(ValueError, match="syntax"):
        Interface("lo", "no filter at all")
