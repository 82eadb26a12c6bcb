"""Captures packets of a network interface, and gives them as a `Capture` that grows.

In: the name of an interface. Out: a `Capture` that reads a pipe. Called by: the commands with ``-i``.

libpcap does the work, through Scapy's bindings. It compiles the filter, takes packets from the kernel's ring and writes
them as a capture file into a pipe, on its own thread and without Python code per packet. The pipe is read like the pipe
of ``tcpdump -w -``. Scapy's own sockets would pass every packet through Python, loopback packets twice. A child process
tcpdump is not installed everywhere, and delays packets by up to a second.
"""

import ctypes
import fcntl
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import BinaryIO, cast

from mqpcap.capture.inputs import Capture, file_of_source
from mqpcap.capture.sources import TICK_S, plain_bytes
from mqpcap.errors import CaptureError

SNAP_BYTES = 1 << 18
"""Snap length: more bytes than any packet has."""
RING_BYTES = 64 << 20
"""Size of the kernel's buffer; packets beyond it are dropped and counted."""
KERNEL_TIMEOUT_MS = 10
"""Time after which the kernel delivers packets, if no block of its ring is full earlier."""
KERNEL_FLUSH_S = 0.04
"""Time after which the kernel has delivered all earlier packets: two periods of KERNEL_TIMEOUT_MS and its own ticks.

It closes a block that is not full when the timer finds it open for the second time (Linux, net/packet/af_packet.c,
prb_retire_rx_blk_timer_expired).
"""
PIPE_BYTES = 1 << 20
PERMISSION_DENIED = -8
"""PCAP_ERROR_PERM_DENIED."""


class Interface:
    """A network interface, captured until ``close``.

    bpf: a filter as tcpdump takes it. Raises CaptureError if the interface cannot be captured, ValueError if bpf is not
    a filter.
    """

    def __init__(self, name: str, bpf: str | None = None) -> None:
        self.name = name
        self.failure: str | None = None
        self._lib = _libpcap(name)
        self._stopping = self._is_drained = False
        self._thread: threading.Thread | None = None
        self._reader: BinaryIO | None = None
        message = ctypes.create_string_buffer(256)
        self._pcap = self._lib.pcap_create(name.encode(), message)
        if not self._pcap:
            raise CaptureError(f"{name}: {message.value.decode('utf-8', 'replace')}")
        try:
            self._start(bpf)
        except BaseException:
            self._lib.pcap_close(self._pcap)
            raise
        self._ready = self._lib.pcap_get_selectable_fd(self._pcap)

    def _start(self, bpf: str | None) -> None:
        lib, pcap = self._lib, self._pcap
        lib.pcap_set_snaplen(pcap, SNAP_BYTES)
        lib.pcap_set_promisc(pcap, 1)
        lib.pcap_set_timeout(pcap, KERNEL_TIMEOUT_MS)
        lib.pcap_set_buffer_size(pcap, RING_BYTES)
        status = lib.pcap_activate(pcap)
        if status < 0:
            raise CaptureError(f"{self.name}: {self._why(status)}")
        if bpf:
            program = lib.bpf_program()
            if lib.pcap_compile(pcap, ctypes.byref(program), bpf.encode(), 1, 0xFFFFFFFF) < 0:
                raise ValueError(self._error())
            lib.pcap_setfilter(pcap, ctypes.byref(program))
        lib.pcap_setnonblock(pcap, 1, ctypes.create_string_buffer(256))

    def _error(self) -> str:
        return str(self._lib.pcap_geterr(self._pcap).decode("utf-8", "replace"))

    def _why(self, status: int) -> str:
        """Why the interface cannot be captured, and what would help."""
        interfaces = [name for _, name in socket.if_nameindex()]
        if self.name not in (*interfaces, "any"):
            return f"there is no such interface; there are {', '.join(interfaces)}"
        words = self._lib.pcap_statustostr(status).decode("utf-8", "replace")
        rights = " (root may, and what tcpdump writes can be read: tcpdump -U -w - | mqpcap show -)"
        return " ".join(f"{words} {self._error()}".split()) + (rights if status == PERMISSION_DENIED else "")

    def capture(self, name: str | None = None, until_s: float | None = None) -> Capture:
        """The packets from now until ``stop`` or a time of the monotonic clock. There is one capture at a time."""
        dropped_before = self.dropped_count()
        ours, theirs = os.pipe()
        with suppress(OSError, AttributeError):  # larger is better, and Linux's alone
            fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # libpcap opens its end anew, and closes that.
        dumper = self._lib.pcap_dump_open(self._pcap, f"/dev/fd/{theirs}".encode())
        os.close(theirs)
        self._reader = reader = open(ours, "rb", buffering=0)  # noqa: SIM115  # closed below, or with the capture
        if not dumper:
            raise CaptureError(f"{self.name}: {self._error()}")
        self._lib.pcap_dump_flush(dumper)
        self._thread = threading.Thread(target=self._write, args=(dumper, until_s), name="mqpcap-listen", daemon=True)
        self._thread.start()
        capture = Capture((file_of_source(name or self.name, plain_bytes(reader, None, owned=True)),))
        capture.dropped_count = lambda: self.dropped_count() - dropped_before
        return capture

    def periods(self, period_s: float | None) -> Iterator[Capture]:
        """The packets until ``stop``, as a capture for each period, named by interface and start; None: one period."""
        while not self.is_stopped:
            begin = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            yield self.capture(f"{self.name}@{begin}", None if period_s is None else time.monotonic() + period_s)
            if period_s is None:
                return

    def _write(self, dumper: object, until_s: float | None) -> None:
        """Write packets to the pipe, until the capture is stopped or its reader has gone."""
        lib = self._lib
        each = ctypes.cast(lib.pcap_dump, lib.pcap_handler)
        user = ctypes.cast(dumper, ctypes.POINTER(ctypes.c_ubyte))  # type: ignore[arg-type]  # a pointer
        is_last = False
        try:
            while not is_last:
                stopping = self._stopping
                if stopping:
                    time.sleep(KERNEL_FLUSH_S)
                is_last = stopping or (until_s is not None and time.monotonic() >= until_s)
                if not select.select([self._ready], [], [], 0 if is_last else TICK_S)[0] and not is_last:
                    continue
                if lib.pcap_dispatch(self._pcap, -1, each, user) < 0:
                    self.failure = self._error()
                    return
                if lib.pcap_dump_flush(dumper) < 0:
                    return
            self._is_drained = stopping
        finally:
            lib.pcap_dump_close(dumper)

    def dropped_count(self) -> int:
        """Packets that the kernel or the interface has dropped because they were not read in time."""
        counts = self._lib.pcap_stat()
        if self._lib.pcap_stats(self._pcap, ctypes.byref(counts)) < 0:
            return 0
        return int(counts.ps_drop + counts.ps_ifdrop)

    def stop(self) -> None:
        """End the capture after the packets that the kernel already has."""
        self._stopping = True

    @property
    def is_stopped(self) -> bool:
        """Whether no more packets follow: ``stop`` was called and the capture has ended."""
        return self._is_drained or self.failure is not None

    def close(self) -> None:
        """Stop capturing."""
        self._stopping = True
        if self._reader is not None:
            self._reader.close()  # who still writes there ends
        if self._thread is not None:
            self._thread.join()
        self._lib.pcap_close(self._pcap)


def _libpcap(name: str) -> ModuleType:
    try:
        from scapy.libs import winpcapy as libpcap
    except OSError as error:
        raise CaptureError(f"{name}: libpcap, which listens to interfaces, is not installed ({error})") from error
    return cast("ModuleType", libpcap)
