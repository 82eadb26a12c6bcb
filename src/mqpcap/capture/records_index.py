# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Bytes of a capture file to the places, lengths and times of its packet records.

Fed by ``windows`` with a piece of a file; fills arrays the caller owns and says where it stopped and why.
Promises: no byte outside ``start`` to ``end`` is read, no memory is taken, nothing raises for any bytes.

A walk stops for one of the reasons below. Blocks that change what follows (pcapng section headers, interface
descriptions) or that only people read (statistics) are rare, so the walk stops before them and the caller reads
them in Python.
"""

import cython

FULL = 0
"""The arrays are full; go on from the position."""
MORE = 1
"""The record at the position is not wholly there; it takes `need` bytes."""
TOO_LONG = 2
"""The record at the position claims `need` bytes, over the limit."""
SPECIAL = 3
"""A section header, interface description or statistics block starts at the position."""
BAD_LENGTH = 4
"""The block's length is no multiple of four, or too short for its type."""
UNEQUAL_LENGTHS = 5
"""The lengths before and behind the block differ."""
NO_INTERFACE = 6
"""The packet names an interface that was not described."""
OVERRUN = 7
"""The packet's captured length passes its block."""

INTERFACE_WIDTH = 6
"""Numbers in a row of the interface table: link type, multiplier, divisor, shift, offset in ns, snap length."""

_INTERFACE_WIDTH = cython.declare(cython.longlong, 6)
# Numbers over 31 bits are Python objects in compiled code unless they are declared.
_HALF_RANGE = cython.declare(cython.longlong, 0x80000000)
_RANGE = cython.declare(cython.longlong, 0x100000000)
_SECONDS_MAX = cython.declare(cython.longlong, 9223372035)
_TIME_MAX = cython.declare(cython.longlong, 9223372036854775807)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _u32(buffer: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, big: cython.bint) -> cython.longlong:
    a: cython.longlong = buffer[at]
    b: cython.longlong = buffer[at + 1]
    c: cython.longlong = buffer[at + 2]
    d: cython.longlong = buffer[at + 3]
    if big:
        return ((a * 256 + b) * 256 + c) * 256 + d
    return ((d * 256 + c) * 256 + b) * 256 + a


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _u16(buffer: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, big: cython.bint) -> cython.longlong:
    a: cython.longlong = buffer[at]
    b: cython.longlong = buffer[at + 1]
    if big:
        return a * 256 + b
    return b * 256 + a


def pcap_records(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    big: cython.bint,
    tick_ns: cython.longlong,
    limit: cython.longlong,
    offset: cython.longlong[::1],
    caplen: cython.longlong[::1],
    wirelen: cython.longlong[::1],
    ts_ns: cython.longlong[::1],
) -> tuple[int, int, int, int]:
    """(rows, position, stop, need) after walking pcap records from start, which is the border of one.

    need is the whole length of the record at the position, 0 where it is not known.
    """
    at: cython.Py_ssize_t = start
    room: cython.Py_ssize_t = offset.shape[0]
    row: cython.Py_ssize_t = 0
    captured: cython.longlong
    while row < room:
        if end - at < 16:
            return row, at, 1, 16
        captured = _u32(buffer, at + 8, big)
        if captured > limit:
            return row, at, 2, captured + 16
        if captured > end - at - 16:
            return row, at, 1, captured + 16
        offset[row] = at + 16
        caplen[row] = captured
        wirelen[row] = _u32(buffer, at + 12, big)
        ts_ns[row] = _u32(buffer, at, big) * 1000000000 + _u32(buffer, at + 4, big) * tick_ns
        row += 1
        at += 16 + captured
    return row, at, 0, 0


def pcap_border(
    buffer: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    is_end: cython.bint,
    big: cython.bint,
    tries: cython.Py_ssize_t,
    longest: cython.longlong,
    step_s: cython.longlong,
    chain_records: cython.Py_ssize_t,
    chain_bytes: cython.Py_ssize_t,
    steps: cython.longlong,
) -> int:
    """The first of the positions below tries from which on records follow one another, -1 for none.

    Each is of 1 to longest bytes, captured and sent, and at most step_s seconds apart from the one before. It takes so
    many of them over so many bytes, or all up to the end of the file, if it is_end; steps is how many records are
    looked at in all.
    """
    start: cython.Py_ssize_t
    at: cython.Py_ssize_t
    count: cython.Py_ssize_t
    captured: cython.longlong
    sent: cython.longlong
    seconds: cython.longlong
    before: cython.longlong
    for start in range(min(tries, end + 1)):
        at = start
        count = 0
        before = 0
        while True:
            if count >= chain_records and at - start >= chain_bytes:
                return start
            if at == end and is_end:
                return start
            if end - at < 16:
                # A file that is cut off ends within a record.
                if is_end and count >= chain_records:
                    return start
                break
            steps -= 1
            if steps < 0:
                return -1
            captured = _u32(buffer, at + 8, big)
            # Both lengths: where they are equal, a chain of the second ones begins four bytes behind each border.
            sent = _u32(buffer, at + 12, big)
            if captured < 1 or captured > sent or sent > longest:
                break
            seconds = _u32(buffer, at, big)
            if count > 0 and (seconds - before > step_s or before - seconds > step_s):
                break
            before = seconds
            count += 1
            at += 16 + captured
    return -1


def pcapng_border(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_end: cython.bint,
    big: cython.bint,
    tries: cython.Py_ssize_t,
    longest: cython.longlong,
    chain_blocks: cython.Py_ssize_t,
    chain_bytes: cython.Py_ssize_t,
    steps: cython.longlong,
) -> int:
    """The same for blocks, which repeat their length; every fourth byte from start on may be the first of one."""
    at: cython.Py_ssize_t
    count: cython.Py_ssize_t
    length: cython.longlong
    while start < tries and start <= end:
        at = start
        count = 0
        while True:
            if count >= chain_blocks and at - start >= chain_bytes:
                return start
            if at == end and is_end:
                return start
            if end - at < 12:
                if is_end and count >= chain_blocks:
                    return start
                break
            steps -= 1
            if steps < 0:
                return -1
            length = _u32(buffer, at + 4, big)
            if length < 12 or length % 4 != 0 or length > longest:
                break
            if length > end - at:
                if count >= chain_blocks and (is_end or at - start + length >= chain_bytes):
                    return start
                break
            if _u32(buffer, at + length - 4, big) != length:
                break
            count += 1
            at += length
        start += 4
    return -1


def last_pcap_record(
    buffer: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    big: cython.bint,
    tries: cython.Py_ssize_t,
    last: cython.int[::1],
) -> int:
    """Where the last record of a file begins, if the buffer ends with it and begins anywhere; -1 if that is in doubt.

    Every position below tries, of which one must be the border of a record, is followed from record to record; those
    that come to the end must agree on the last. ``last`` is room for a number a byte.
    """
    at: cython.Py_ssize_t
    after: cython.longlong
    found: cython.longlong = -1
    for at in range(end - 1, -1, -1):
        last[at] = -1
        if end - at < 16:
            continue
        after = at + 16 + _u32(buffer, at + 8, big)
        if after == end:
            last[at] = at
        elif after < end:
            last[at] = last[after]
        if at < tries and last[at] >= 0:
            if found >= 0 and found != last[at]:
                return -1
            found = last[at]
    return found


def last_pcapng_packet(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    big: cython.bint,
    tries: cython.Py_ssize_t,
    last: cython.int[::1],
) -> int:
    """The same for the last packet block with a time; in doubt also where a section or an interface begins."""
    at: cython.Py_ssize_t
    after: cython.Py_ssize_t
    length: cython.longlong
    kind: cython.longlong
    found: cython.longlong = -3
    at = end - (end - start) % 4
    while at > start:
        at -= 4
        last[at] = -1
        if end - at < 12:
            continue
        length = _u32(buffer, at + 4, big)
        if length < 12 or length % 4 != 0 or length > end - at:
            continue
        after = at + length
        if _u32(buffer, after - 4, big) != length:
            continue
        # -1 leads nowhere, -2 to the end without a packet, -3 in doubt.
        last[at] = -2 if after == end else last[after]
        kind = _u32(buffer, at, big)
        if last[at] == -2 and (kind == 6 or kind == 2):
            last[at] = at
        elif (last[at] == -2 and kind == 3) or (last[at] != -1 and (kind == 1 or kind == 0x0A0D0D0A)):
            last[at] = -3
        if at < tries and last[at] != -1:
            if found != -3 and found != last[at]:
                return -1
            found = last[at]
            if found < 0:
                return -1
    return found if found >= 0 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _time_ns(
    high: cython.longlong,
    low: cython.longlong,
    multiplier: cython.longlong,
    divisor: cython.longlong,
    shift: cython.longlong,
    offset_ns: cython.longlong,
) -> cython.longlong:
    """Nanoseconds of a 64-bit count of ticks; what does not fit becomes the last time that does."""
    ticks: cython.longlong
    seconds: cython.longlong
    rest: cython.longlong
    time_ns: cython.longlong
    if high >= _HALF_RANGE:
        return _TIME_MAX
    ticks = high * _RANGE + low
    if shift >= 0:
        # Binary ticks: whole seconds, then the fraction brought to 32 bits so that the product fits.
        seconds = ticks >> shift
        rest = ticks - (seconds << shift)
        if shift > 32:
            rest = (rest >> (shift - 32)) * 1000000000 >> 32
        else:
            rest = rest * 1000000000 >> shift
        if seconds > _SECONDS_MAX:
            return _TIME_MAX
        time_ns = seconds * 1000000000 + rest
    elif multiplier == 0:
        time_ns = 0
    else:
        if ticks > _TIME_MAX // multiplier:
            return _TIME_MAX
        time_ns = ticks * multiplier // divisor
    if offset_ns > 0 and time_ns > _TIME_MAX - offset_ns:
        return _TIME_MAX
    return time_ns + offset_ns


def pcapng_records(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    big: cython.bint,
    limit: cython.longlong,
    interfaces: cython.longlong[::1],
    interface_count: cython.longlong,
    last_ts_ns: cython.longlong,
    last_number: cython.longlong,
    offset: cython.longlong[::1],
    caplen: cython.longlong[::1],
    wirelen: cython.longlong[::1],
    ts_ns: cython.longlong[::1],
    link_type: cython.int[::1],
    number: cython.longlong[::1],
) -> tuple[int, int, int, int, int]:
    """(rows, position, stop, need, last_number) after walking pcapng blocks from the border of one.

    Simple packet blocks carry no time and get that of the packet before (last_ts_ns for the first). Blocks of
    unknown type are passed over. So are events and custom blocks, but Wireshark counts them as packets.
    """
    at: cython.Py_ssize_t = start
    room: cython.Py_ssize_t = offset.shape[0]
    row: cython.Py_ssize_t = 0
    kind: cython.longlong
    length: cython.longlong
    head: cython.longlong
    captured: cython.longlong
    original: cython.longlong
    interface: cython.longlong
    snaplen: cython.longlong
    entry: cython.Py_ssize_t
    while row < room:
        if end - at < 12:
            return row, at, 1, 12, last_number
        kind = _u32(buffer, at, big)
        if kind == 0x0A0D0D0A or kind == 1 or kind == 5:
            return row, at, 3, 12, last_number
        length = _u32(buffer, at + 4, big)
        if length < 12 or length % 4 != 0:
            return row, at, 4, length, last_number
        if length > limit:
            return row, at, 2, length, last_number
        if length > end - at:
            return row, at, 1, length, last_number
        if _u32(buffer, at + length - 4, big) != length:
            return row, at, 5, length, last_number
        if kind == 6 or kind == 2:
            head = 28
            if length < 32:
                return row, at, 4, length, last_number
            if kind == 6:
                interface = _u32(buffer, at + 8, big)
            else:
                interface = _u16(buffer, at + 8, big)
            captured = _u32(buffer, at + 20, big)
            original = _u32(buffer, at + 24, big)
        elif kind == 3:
            head = 12
            if length < 16:
                return row, at, 4, length, last_number
            interface = 0
            original = _u32(buffer, at + 8, big)
            captured = length - 16
        else:
            # Custom blocks, journal entries, sysdig events.
            if kind == 0xBAD or kind == 0x40000BAD or kind == 9 or kind == 0x204 or kind == 0x216 or kind == 0x221:
                last_number += 1
            at += length
            continue
        if interface >= interface_count:
            return row, at, 6, interface, last_number
        entry = interface * _INTERFACE_WIDTH
        if kind == 3:
            # It does not say how much was captured: the least of what it holds, the wire and the snap length.
            snaplen = interfaces[entry + 5]
            if captured > original:
                captured = original
            if snaplen > 0 and captured > snaplen:
                captured = snaplen
        else:
            if captured > length - head - 4:
                return row, at, 7, captured, last_number
            last_ts_ns = _time_ns(
                _u32(buffer, at + 12, big),
                _u32(buffer, at + 16, big),
                interfaces[entry + 1],
                interfaces[entry + 2],
                interfaces[entry + 3],
                interfaces[entry + 4],
            )
        offset[row] = at + head
        caplen[row] = captured
        wirelen[row] = original
        ts_ns[row] = last_ts_ns
        link_type[row] = interfaces[entry]
        last_number += 1
        number[row] = last_number
        row += 1
        at += length
    return row, at, 0, 0, last_number
