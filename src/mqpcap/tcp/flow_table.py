# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""The table of flows and the walk over segments that arrive in order.

Fed by :mod:`mqpcap.tcp.reassembly`, which owns the arrays and takes every packet that is not in order. A flow is one
record of WORDS int64 in one flat array, found through an open-addressing table over the 5-tuple; each accepted run of
payload is one record of PIECE int64. A record's place in the table is hashed with secret numbers of the process: who
makes a capture must not be able to choose it, and no row depends on it. ``walk`` stops at the first packet it must not
judge (state says which) and changes nothing for it, so the caller can judge it and let the walk go on behind it: every
decision is made per packet.

Promises: no reference to payload bytes, only to their places; every access is bounds-checked; no Python object per
packet.
"""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled

# One flow: words of the connection, then SIDE_WORDS for each side.
KEY = cython.declare(cython.const[cython.longlong], 0)
A_HI = cython.declare(cython.const[cython.longlong], 1)
A_LO = cython.declare(cython.const[cython.longlong], 2)
B_HI = cython.declare(cython.const[cython.longlong], 3)
B_LO = cython.declare(cython.const[cython.longlong], 4)
A_PORT = cython.declare(cython.const[cython.longlong], 5)
B_PORT = cython.declare(cython.const[cython.longlong], 6)
VERSION = cython.declare(cython.const[cython.longlong], 7)
MARKS = cython.declare(cython.const[cython.longlong], 8)
FIRST_TS = cython.declare(cython.const[cython.longlong], 9)
LAST_TS = cython.declare(cython.const[cython.longlong], 10)
BEFORE = cython.declare(cython.const[cython.longlong], 11)  # the flow that used the tuple before, -1
EQUAL = cython.declare(cython.const[cython.longlong], 12)  # number among flows of this tuple and time
SIDE = cython.declare(cython.const[cython.longlong], 13)  # where side 0 begins

BASE = cython.declare(cython.const[cython.longlong], 0)  # sequence number of stream offset 0, -1 unknown
NEXT = cython.declare(cython.const[cython.longlong], 1)  # stream offset of the next byte in order
PACKETS = cython.declare(cython.const[cython.longlong], 2)
BYTES = cython.declare(cython.const[cython.longlong], 3)
RETRANSMITTED = cython.declare(cython.const[cython.longlong], 4)  # retransmitted bytes
CONFLICT = cython.declare(cython.const[cython.longlong], 5)
MISSING = cython.declare(cython.const[cython.longlong], 6)
ACK = cython.declare(cython.const[cython.longlong], 7)  # highest acknowledgement number this side sent, -1 none
FIRST_ACK = cython.declare(cython.const[cython.longlong], 8)
FIN = cython.declare(cython.const[cython.longlong], 9)  # stream offset of the FIN, NONE
MAX_SEEN = cython.declare(cython.const[cython.longlong], 10)  # bytes are known to exist below this stream offset
FLOOR = cython.declare(cython.const[cython.longlong], 11)  # bytes below are no longer compared
DELIVERED = cython.declare(cython.const[cython.longlong], 12)  # the reader is done with bytes below
PIECE_LAST = cython.declare(cython.const[cython.longlong], 13)  # number of its last piece
# A side's place among those with news, if PIECE_LAST is of this feed.
SLOT = cython.declare(cython.const[cython.longlong], 14)
SHIFT = cython.declare(cython.const[cython.longlong], 15)  # bytes captured below offset 0
WAKE_AT = cython.declare(cython.const[cython.longlong], 16)  # not shown before it reaches this stream offset
HISTORY_END = cython.declare(cython.const[cython.longlong], 17)  # bytes below are in the history or gone from it
SIDE_WORDS = cython.declare(cython.const[cython.longlong], 18)
WORDS = cython.declare(cython.const[cython.longlong], 49)

# MARKS; a mark of a side is shifted left by the side.
HARD = cython.declare(cython.const[cython.longlong], 1)  # a side is not in order: the caller takes every packet
ORIENTED = cython.declare(cython.const[cython.longlong], 2)
CLOSED = cython.declare(cython.const[cython.longlong], 4)  # by RST, or both FINs are acknowledged
SYN_SEEN = cython.declare(cython.const[cython.longlong], 16)
RST_SEEN = cython.declare(cython.const[cython.longlong], 64)
ENDED = cython.declare(cython.const[cython.longlong], 256)
SURE = cython.declare(cython.const[cython.longlong], 1024)  # BASE comes from a handshake: no byte is below

# One piece.
P_SIDE = cython.declare(cython.const[cython.longlong], 0)  # flow * 2 + side
P_OFFSET = cython.declare(cython.const[cython.longlong], 1)
P_LENGTH = cython.declare(cython.const[cython.longlong], 2)
P_START = cython.declare(cython.const[cython.longlong], 3)  # in the window; below 0: -1 - place in the held bytes
P_TS = cython.declare(cython.const[cython.longlong], 4)
P_NUMBER = cython.declare(cython.const[cython.longlong], 5)
P_FILE = cython.declare(cython.const[cython.longlong], 6)
P_BEFORE = cython.declare(cython.const[cython.longlong], 7)  # number of the piece before, of the same side
P_SLOT = cython.declare(cython.const[cython.longlong], 8)
PIECE = cython.declare(cython.const[cython.longlong], 9)

# The state shared by walk and caller.
FLOWS = cython.declare(cython.const[cython.longlong], 0)
PIECES = cython.declare(cython.const[cython.longlong], 1)
PIECE_FIRST = cython.declare(cython.const[cython.longlong], 2)  # number of the first piece of this feed
TOUCHED = cython.declare(cython.const[cython.longlong], 3)
ENDS = cython.declare(cython.const[cython.longlong], 4)
PACKETS_ALL = cython.declare(cython.const[cython.longlong], 5)
HISTORY = cython.declare(cython.const[cython.longlong], 6)  # bytes that history may hold by now
ALLOWANCE = cython.declare(cython.const[cython.longlong], 7)  # history bytes of one side
HISTORY_CAP = cython.declare(cython.const[cython.longlong], 8)
SHRUNK = cython.declare(cython.const[cython.longlong], 9)  # how often the allowance was halved
FLOW = cython.declare(cython.const[cython.longlong], 10)  # of the packet the walk stopped at
FLOW_SIDE = cython.declare(cython.const[cython.longlong], 11)
WHY = cython.declare(cython.const[cython.longlong], 12)
SWEPT = cython.declare(cython.const[cython.longlong], 13)  # PACKETS_ALL at the last sweep
SEED = cython.declare(cython.const[cython.longlong], 14)  # secret numbers, for the place of a flow in the table
SEEDS = cython.declare(cython.const[cython.longlong], 11)
STATE = cython.declare(cython.const[cython.longlong], 25)

# WHY
DONE = cython.declare(cython.const[cython.longlong], 0)
JUDGE = cython.declare(cython.const[cython.longlong], 1)
GROW = cython.declare(cython.const[cython.longlong], 2)
SWEEP = cython.declare(cython.const[cython.longlong], 3)

F_FIN = cython.declare(cython.const[cython.longlong], 1)
F_SYN = cython.declare(cython.const[cython.longlong], 2)
F_RST = cython.declare(cython.const[cython.longlong], 4)
F_ACK = cython.declare(cython.const[cython.longlong], 16)

NONE = cython.declare(cython.const[cython.longlong], -4611686018427387904)
MASK = cython.declare(cython.const[cython.longlong], 0xFFFFFFFF)
OLDEST = cython.declare(cython.const[cython.longlong], 1073741824)  # the largest TCP window: nothing older comes again
HISTORY_OVERHEAD = cython.declare(cython.const[cython.longlong], 256)  # what a side's history costs besides its bytes
SWEEP_PACKETS = cython.declare(cython.const[cython.longlong], 1048576)
IDLE = cython.declare(cython.const[cython.longlong], 3600000000000)  # nanoseconds
LOOKED_BACK = cython.declare(cython.const[cython.longlong], 256)  # pieces that recent goes through

LAYOUT: dict[str, int] = {
    "KEY": KEY, "A_HI": A_HI, "A_LO": A_LO, "B_HI": B_HI, "B_LO": B_LO, "A_PORT": A_PORT, "B_PORT": B_PORT,
    "VERSION": VERSION, "MARKS": MARKS, "FIRST_TS": FIRST_TS, "LAST_TS": LAST_TS, "BEFORE": BEFORE, "EQUAL": EQUAL,
    "SIDE": SIDE, "BASE": BASE, "NEXT": NEXT, "PACKETS": PACKETS, "BYTES": BYTES, "RETRANSMITTED": RETRANSMITTED,
    "CONFLICT": CONFLICT, "MISSING": MISSING, "ACK": ACK, "FIRST_ACK": FIRST_ACK, "FIN": FIN, "MAX_SEEN": MAX_SEEN,
    "FLOOR": FLOOR, "DELIVERED": DELIVERED, "PIECE_LAST": PIECE_LAST, "SHIFT": SHIFT, "WAKE_AT": WAKE_AT,
    "HISTORY_END": HISTORY_END, "SIDE_WORDS": SIDE_WORDS, "WORDS": WORDS, "HARD": HARD, "ORIENTED": ORIENTED,
    "CLOSED": CLOSED, "SYN_SEEN": SYN_SEEN, "RST_SEEN": RST_SEEN, "ENDED": ENDED, "SURE": SURE, "P_SIDE": P_SIDE,
    "P_OFFSET": P_OFFSET, "P_LENGTH": P_LENGTH, "P_START": P_START, "P_TS": P_TS, "P_NUMBER": P_NUMBER,
    "P_FILE": P_FILE, "P_BEFORE": P_BEFORE, "P_SLOT": P_SLOT, "PIECE": PIECE, "FLOWS": FLOWS, "PIECES": PIECES,
    "PIECE_FIRST": PIECE_FIRST, "TOUCHED": TOUCHED, "ENDS": ENDS, "PACKETS_ALL": PACKETS_ALL, "HISTORY": HISTORY,
    "ALLOWANCE": ALLOWANCE, "HISTORY_CAP": HISTORY_CAP, "SHRUNK": SHRUNK, "FLOW": FLOW, "FLOW_SIDE": FLOW_SIDE,
    "WHY": WHY, "SWEPT": SWEPT, "SEED": SEED, "SEEDS": SEEDS, "STATE": STATE, "DONE": DONE, "JUDGE": JUDGE,
    "GROW": GROW, "SWEEP": SWEEP, "IDLE": IDLE, "NONE": NONE, "OLDEST": OLDEST, "SLOT": SLOT,
}  # fmt: skip
"""The words above for callers: compiled, the names themselves are C variables."""


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _ahead(seq: cython.longlong, expected: cython.longlong) -> cython.longlong:
    return ((seq - expected + OLDEST) & MASK) - OLDEST


def ahead(seq: int, expected: int) -> int:
    """How far a sequence number is ahead of the expected one, from -2**30 to 3 * 2**30 - 1.

    TCP sends nothing again that is older than its largest window, 2**30 bytes; the rest of the circle is new data, so
    a stream goes on after a hole in the capture of up to 3 GiB.

    >>> ahead(5, 0xFFFFFFFF)
    6
    """
    return int(_ahead(seq, expected))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _product(
    one: cython.ulonglong, first: cython.ulonglong, two: cython.ulonglong, second: cython.ulonglong
) -> cython.ulonglong:
    return (one + first) * (two + second)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _slot(
    s: cython.longlong[::1],
    mask: cython.longlong,
    a_hi: cython.longlong,
    a_lo: cython.longlong,
    b_hi: cython.longlong,
    b_lo: cython.longlong,
    a_port: cython.longlong,
    b_port: cython.longlong,
    version: cython.longlong,
) -> cython.longlong:
    """The first place to look for a flow, whichever end is A.

    Multilinear-HM of Lemire and Kaser (Strongly universal string hashing is fast, 2014): the upper half of a sum of
    products, each of two words of 32 bits and two secret numbers. Any two flows share a place only by chance.
    """
    h: cython.ulonglong = s[SEED]
    if a_lo > b_lo or (a_lo == b_lo and (a_hi > b_hi or (a_hi == b_hi and a_port > b_port))):
        a_hi, a_lo, a_port, b_hi, b_lo, b_port = b_hi, b_lo, b_port, a_hi, a_lo, a_port
    h += _product(s[SEED + 1], (a_hi >> 32) & MASK, s[SEED + 2], a_hi & MASK)
    h += _product(s[SEED + 3], (a_lo >> 32) & MASK, s[SEED + 4], a_lo & MASK)
    h += _product(s[SEED + 5], (b_hi >> 32) & MASK, s[SEED + 6], b_hi & MASK)
    h += _product(s[SEED + 7], (b_lo >> 32) & MASK, s[SEED + 8], b_lo & MASK)
    h += _product(s[SEED + 9], (a_port << 16) | b_port, s[SEED + 10], version)
    return (h >> 32) & mask


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _slot_of(
    s: cython.longlong[::1], f: cython.longlong[::1], mask: cython.longlong, r: cython.longlong
) -> cython.longlong:
    return _slot(
        s, mask, f[r + A_HI], f[r + A_LO], f[r + B_HI], f[r + B_LO], f[r + A_PORT], f[r + B_PORT], f[r + VERSION]
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _held(s: cython.longlong[::1], f: cython.longlong[::1], q: cython.longlong) -> cython.longlong:
    """What the history of a side may hold: its bytes since the floor, up to the allowance."""
    n: cython.longlong = f[q + NEXT] - f[q + FLOOR]
    if n <= 0 or s[ALLOWANCE] == 0:
        return 0
    if n > s[ALLOWANCE]:
        n = s[ALLOWANCE]
    return n + HISTORY_OVERHEAD


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _shrink(s: cython.longlong[::1], f: cython.longlong[::1]) -> cython.longlong:
    """Halve what each side may hold until all fit under the cap."""
    r: cython.longlong
    total: cython.longlong
    while s[HISTORY] > s[HISTORY_CAP] and s[ALLOWANCE] > 0:
        s[ALLOWANCE] = s[ALLOWANCE] // 2 if s[ALLOWANCE] > HISTORY_OVERHEAD else 0
        s[SHRUNK] += 1
        total = 0
        r = SIDE
        while r < s[FLOWS] * WORDS:
            total += _held(s, f, r) + _held(s, f, r + SIDE_WORDS)
            r += WORDS
        s[HISTORY] = total
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _forget(s: cython.longlong[::1], f: cython.longlong[::1], q: cython.longlong) -> cython.longlong:
    """Compare no byte of this side any more that was captured by now."""
    if f[q + FLOOR] < f[q + NEXT]:
        s[HISTORY] -= _held(s, f, q)
        f[q + FLOOR] = f[q + NEXT]
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _advance(
    s: cython.longlong[::1], f: cython.longlong[::1], q: cython.longlong, length: cython.longlong
) -> cython.longlong:
    before: cython.longlong = _held(s, f, q)
    f[q + NEXT] += length
    if f[q + MAX_SEEN] < f[q + NEXT]:
        f[q + MAX_SEEN] = f[q + NEXT]
    s[HISTORY] += _held(s, f, q) - before
    if s[HISTORY] > s[HISTORY_CAP]:
        _shrink(s, f)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _end(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    ends: cython.longlong[::1],
    flow: cython.longlong,
    side: cython.longlong,
) -> cython.longlong:
    f[flow * WORDS + MARKS] |= ENDED << side
    ends[s[ENDS]] = flow * 2 + side
    s[ENDS] += 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _accept(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    pieces: cython.longlong[::1],
    touched: cython.longlong[::1],
    ends: cython.longlong[::1],
    flow: cython.longlong,
    side: cython.longlong,
    start: cython.longlong,
    length: cython.longlong,
    ts_ns: cython.longlong,
    number: cython.longlong,
    file: cython.longlong,
) -> cython.longlong:
    q: cython.longlong = flow * WORDS + SIDE + side * SIDE_WORDS
    p: cython.longlong = s[PIECES] * PIECE
    if f[q + PIECE_LAST] < s[PIECE_FIRST]:
        f[q + SLOT] = s[TOUCHED]
        touched[s[TOUCHED]] = flow * 2 + side
        s[TOUCHED] += 1
    pieces[p + P_SIDE] = flow * 2 + side
    pieces[p + P_OFFSET] = f[q + NEXT]
    pieces[p + P_LENGTH] = length
    pieces[p + P_START] = start
    pieces[p + P_TS] = ts_ns
    pieces[p + P_NUMBER] = number
    pieces[p + P_FILE] = file
    pieces[p + P_BEFORE] = f[q + PIECE_LAST]
    pieces[p + P_SLOT] = f[q + SLOT]
    f[q + PIECE_LAST] = s[PIECE_FIRST] + s[PIECES]
    s[PIECES] += 1
    _advance(s, f, q, length)
    if f[q + FIN] == f[q + NEXT] and f[flow * WORDS + MARKS] & (ENDED << side) == 0:
        _end(s, f, ends, flow, side)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _acknowledge(f: cython.longlong[::1], q: cython.longlong, ack: cython.longlong) -> cython.longlong:
    if f[q + ACK] < 0:
        f[q + FIRST_ACK] = ack
        f[q + ACK] = ack
    elif _ahead(ack, f[q + ACK]) > 0:
        f[q + ACK] = ack
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _close(s: cython.longlong[::1], f: cython.longlong[::1], r: cython.longlong) -> cython.longlong:
    """Mark the flow closed if both FINs are acknowledged."""
    a: cython.longlong = r + SIDE
    b: cython.longlong = a + SIDE_WORDS
    if f[a + FIN] == NONE or f[b + FIN] == NONE or f[r + MARKS] & CLOSED:
        return 0
    if f[a + ACK] < 0 or f[b + ACK] < 0 or f[a + BASE] < 0 or f[b + BASE] < 0:
        return 0
    if _ahead(f[b + ACK], f[a + BASE] + f[a + FIN] + 1) >= 0 and _ahead(f[a + ACK], f[b + BASE] + f[b + FIN] + 1) >= 0:
        f[r + MARKS] |= CLOSED
        _forget(s, f, a)
        _forget(s, f, b)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _create(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    h: cython.longlong[::1],
    slot: cython.longlong,
    before: cython.longlong,
    key: cython.longlong,
    a_hi: cython.longlong,
    a_lo: cython.longlong,
    b_hi: cython.longlong,
    b_lo: cython.longlong,
    a_port: cython.longlong,
    b_port: cython.longlong,
    version: cython.longlong,
    ts_ns: cython.longlong,
) -> cython.longlong:
    """The number of a new flow in the table at slot; the caller has made room."""
    flow: cython.longlong = s[FLOWS]
    r: cython.longlong = flow * WORDS
    q: cython.longlong
    i: cython.longlong
    for i in range(WORDS):
        f[r + i] = 0
    f[r + KEY] = key
    f[r + A_HI] = a_hi
    f[r + A_LO] = a_lo
    f[r + B_HI] = b_hi
    f[r + B_LO] = b_lo
    f[r + A_PORT] = a_port
    f[r + B_PORT] = b_port
    f[r + VERSION] = version
    f[r + FIRST_TS] = ts_ns
    f[r + LAST_TS] = ts_ns
    f[r + BEFORE] = before
    for i in range(2):
        q = r + SIDE + i * SIDE_WORDS
        f[q + BASE] = -1
        f[q + ACK] = -1
        f[q + FIRST_ACK] = -1
        f[q + FIN] = NONE
        f[q + PIECE_LAST] = -1
    h[slot] = flow + 1
    s[FLOWS] += 1
    return flow


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _walk(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    h: cython.longlong[::1],
    pieces: cython.longlong[::1],
    touched: cython.longlong[::1],
    ends: cython.longlong[::1],
    key: cython.const[cython.longlong][::1],
    src_hi: cython.const[cython.longlong][::1],
    src_lo: cython.const[cython.longlong][::1],
    dst_hi: cython.const[cython.longlong][::1],
    dst_lo: cython.const[cython.longlong][::1],
    version: cython.const[cython.schar][::1],
    sport: cython.const[cython.int][::1],
    dport: cython.const[cython.int][::1],
    seqs: cython.const[cython.longlong][::1],
    acks: cython.const[cython.longlong][::1],
    flags: cython.const[cython.int][::1],
    starts: cython.const[cython.longlong][::1],
    lengths: cython.const[cython.longlong][::1],
    wire_lengths: cython.const[cython.longlong][::1],
    ts_ns: cython.const[cython.longlong][::1],
    numbers: cython.const[cython.longlong][::1],
    files: cython.const[cython.int][::1],
    first: cython.longlong,
) -> cython.longlong:
    i: cython.longlong
    n: cython.longlong = key.shape[0] if cython.compiled else len(key)
    mask: cython.longlong = (h.shape[0] if cython.compiled else len(h)) - 1
    room: cython.longlong = (f.shape[0] if cython.compiled else len(f)) // WORDS
    k: cython.longlong
    slot: cython.longlong
    flow: cython.longlong
    side: cython.longlong
    r: cython.longlong
    q: cython.longlong
    o: cython.longlong
    flag: cython.longlong
    seq: cython.longlong
    length: cython.longlong
    off: cython.longlong
    for i in range(first, n):
        if s[PACKETS_ALL] - s[SWEPT] >= SWEEP_PACKETS:
            s[WHY] = SWEEP
            return i
        k = key[i]
        flag = flags[i]
        slot = _slot(s, mask, src_hi[i], src_lo[i], dst_hi[i], dst_lo[i], sport[i], dport[i], version[i])
        flow = -1
        side = 0
        while h[slot] != 0:
            r = (h[slot] - 1) * WORDS
            if f[r + KEY] == k and f[r + VERSION] == version[i]:
                if (
                    f[r + A_LO] == src_lo[i]
                    and f[r + B_LO] == dst_lo[i]
                    and f[r + A_PORT] == sport[i]
                    and f[r + B_PORT] == dport[i]
                    and f[r + A_HI] == src_hi[i]
                    and f[r + B_HI] == dst_hi[i]
                ):
                    flow = h[slot] - 1
                    break
                if (
                    f[r + B_LO] == src_lo[i]
                    and f[r + A_LO] == dst_lo[i]
                    and f[r + B_PORT] == sport[i]
                    and f[r + A_PORT] == dport[i]
                    and f[r + B_HI] == src_hi[i]
                    and f[r + A_HI] == dst_hi[i]
                ):
                    flow = h[slot] - 1
                    side = 1
                    break
            slot = (slot + 1) & mask
        if flow < 0:
            if s[FLOWS] >= room:
                s[WHY] = GROW
                return i
            if flag & F_SYN and flag & F_ACK:
                side = 1
                flow = _create(
                    s, f, h, slot, -1, k, dst_hi[i], dst_lo[i], src_hi[i], src_lo[i], dport[i], sport[i], version[i],
                    ts_ns[i],
                )  # fmt: skip
            else:
                flow = _create(
                    s, f, h, slot, -1, k, src_hi[i], src_lo[i], dst_hi[i], dst_lo[i], sport[i], dport[i], version[i],
                    ts_ns[i],
                )  # fmt: skip
            if flag & F_SYN:
                f[flow * WORDS + MARKS] = ORIENTED
        s[FLOW] = flow
        s[FLOW_SIDE] = side
        s[WHY] = JUDGE
        r = flow * WORDS
        if f[r + MARKS] & HARD or ts_ns[i] - f[r + LAST_TS] > IDLE:
            return i
        q = r + SIDE + side * SIDE_WORDS
        o = r + SIDE + (1 - side) * SIDE_WORDS
        if flag & F_RST and lengths[i] > 0:
            return i
        if flag & F_RST:
            f[r + MARKS] |= (RST_SEEN << side) | CLOSED
            _forget(s, f, q)
            _forget(s, f, o)
            f[q + PACKETS] += 1
            f[r + LAST_TS] = ts_ns[i]
            s[PACKETS_ALL] += 1
            continue
        seq = seqs[i]
        if flag & F_SYN:
            seq = (seq + 1) & MASK
            if (
                f[r + MARKS] & ORIENTED == 0
                or f[r + MARKS] & CLOSED
                or f[q + PACKETS] != 0
                or f[q + BASE] >= 0
                or (f[o + ACK] >= 0 and f[o + ACK] != seq)
            ):
                if f[q + BASE] != seq or f[r + MARKS] & (SYN_SEEN << side) == 0 or f[r + MARKS] & CLOSED:
                    return i
                if f[q + FIN] != NONE and f[o + FIN] != NONE:
                    return i
            else:
                if flag & F_ACK:
                    if f[o + BASE] < 0 and f[o + PACKETS] == 0:
                        f[o + BASE] = acks[i]
                        f[r + MARKS] |= SURE << (1 - side)
                    elif _ahead(acks[i], f[o + BASE]) < 0 or _ahead(acks[i], f[o + BASE]) > f[o + MAX_SEEN]:
                        return i
                f[q + BASE] = seq
                f[r + MARKS] |= (SYN_SEEN | SURE) << side
        elif f[q + BASE] < 0:
            return i
        length = lengths[i]
        if length != wire_lengths[i]:
            return i
        off = f[q + NEXT] + _ahead(seq, f[q + BASE] + f[q + NEXT])
        if length > 0:
            if off != f[q + NEXT] or f[r + MARKS] & (ENDED << side):
                return i
            f[q + BYTES] += length
            _accept(s, f, pieces, touched, ends, flow, side, starts[i], length, ts_ns[i], numbers[i], files[i])
        elif off > f[q + MAX_SEEN] and off - f[q + NEXT] < OLDEST:
            f[q + MAX_SEEN] = off
        f[q + PACKETS] += 1
        f[r + LAST_TS] = ts_ns[i]
        s[PACKETS_ALL] += 1
        if flag & F_FIN and f[q + FIN] == NONE:
            off += length
            f[q + FIN] = off
            if off > f[q + MAX_SEEN] and off - f[q + NEXT] < OLDEST:
                f[q + MAX_SEEN] = off
            if off == f[q + NEXT]:
                _end(s, f, ends, flow, side)
        if flag & F_ACK:
            _acknowledge(f, q, acks[i])
            if f[q + FIN] != NONE or f[o + FIN] != NONE:
                _close(s, f, r)
    s[WHY] = DONE
    return n


def walk(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    h: cython.longlong[::1],
    pieces: cython.longlong[::1],
    touched: cython.longlong[::1],
    ends: cython.longlong[::1],
    columns: tuple,
    first: int,
) -> int:
    """The row of the first packet the caller must judge, or the number of rows.

    s[WHY] says what is needed (JUDGE: s[FLOW] and s[FLOW_SIDE] name the flow; GROW; SWEEP) or DONE. columns are the
    memoryviews key, src_hi, src_lo, dst_hi, dst_lo, version, sport, dport, seq, ack, flags, start, length,
    wire_length, ts_ns, number, file. pieces, touched and ends have room for two more entries than rows are left.
    """
    key: cython.const[cython.longlong][::1] = columns[0]
    src_hi: cython.const[cython.longlong][::1] = columns[1]
    src_lo: cython.const[cython.longlong][::1] = columns[2]
    dst_hi: cython.const[cython.longlong][::1] = columns[3]
    dst_lo: cython.const[cython.longlong][::1] = columns[4]
    version: cython.const[cython.schar][::1] = columns[5]
    sport: cython.const[cython.int][::1] = columns[6]
    dport: cython.const[cython.int][::1] = columns[7]
    seqs: cython.const[cython.longlong][::1] = columns[8]
    acks: cython.const[cython.longlong][::1] = columns[9]
    flags: cython.const[cython.int][::1] = columns[10]
    starts: cython.const[cython.longlong][::1] = columns[11]
    lengths: cython.const[cython.longlong][::1] = columns[12]
    wire_lengths: cython.const[cython.longlong][::1] = columns[13]
    ts_ns: cython.const[cython.longlong][::1] = columns[14]
    numbers: cython.const[cython.longlong][::1] = columns[15]
    files: cython.const[cython.int][::1] = columns[16]
    row: cython.longlong = first
    with cython.nogil:
        row = _walk(
            s, f, h, pieces, touched, ends, key, src_hi, src_lo, dst_hi, dst_lo, version, sport, dport, seqs, acks,
            flags, starts, lengths, wire_lengths, ts_ns, numbers, files, row,
        )  # fmt: skip
    return int(row)


def accept(
    s: cython.longlong[::1],
    f: cython.longlong[::1],
    pieces: cython.longlong[::1],
    touched: cython.longlong[::1],
    ends: cython.longlong[::1],
    flow: int,
    side: int,
    start: int,
    length: int,
    ts_ns: int,
    number: int,
    file: int,
) -> None:
    """Append a piece at the side's next offset; the side ends if its FIN is reached."""
    _accept(s, f, pieces, touched, ends, flow, side, start, length, ts_ns, number, file)


def end(s: cython.longlong[::1], f: cython.longlong[::1], ends: cython.longlong[::1], flow: int, side: int) -> None:
    """Mark a side as ended and note it as news."""
    _end(s, f, ends, flow, side)


def advance(s: cython.longlong[::1], f: cython.longlong[::1], place: int, length: int) -> None:
    """Move a side (its place in f) over bytes that are given up."""
    _advance(s, f, place, length)


def acknowledge(f: cython.longlong[::1], place: int, ack: int) -> None:
    """Take an acknowledgement number sent by the side at this place in f."""
    _acknowledge(f, place, ack)


def close(s: cython.longlong[::1], f: cython.longlong[::1], flow: int) -> None:
    """Mark the flow closed if both FINs are acknowledged, and stop comparing its bytes."""
    _close(s, f, flow * WORDS)


def forget(s: cython.longlong[::1], f: cython.longlong[::1], flow: int) -> None:
    """Stop comparing the bytes of a flow that were captured by now."""
    _forget(s, f, flow * WORDS + SIDE)
    _forget(s, f, flow * WORDS + SIDE + SIDE_WORDS)


def forget_idle(s: cython.longlong[::1], f: cython.longlong[::1], before_ns: int) -> None:
    """Stop comparing the bytes of flows whose last packet is older than before_ns."""
    flow: cython.longlong
    r: cython.longlong
    limit: cython.longlong = before_ns
    for flow in range(s[FLOWS]):
        r = flow * WORDS
        if f[r + LAST_TS] < limit:
            _forget(s, f, r + SIDE)
            _forget(s, f, r + SIDE + SIDE_WORDS)


def replace(
    s: cython.longlong[::1], f: cython.longlong[::1], h: cython.longlong[::1], flow: int, side: int, ts_ns: int
) -> None:
    """Open a new flow on the tuple of this one, its endpoint A being the given side of the old flow.

    Its EQUAL is 0: the caller knows better.
    """
    r: cython.longlong = flow * WORDS
    old: cython.longlong = flow
    k: cython.longlong = f[r + KEY]
    mask: cython.longlong = (h.shape[0] if cython.compiled else len(h)) - 1
    slot: cython.longlong = _slot_of(s, f, mask, r)
    new: cython.longlong
    while h[slot] != old + 1:
        if h[slot] == 0:
            raise KeyError(flow)
        slot = (slot + 1) & mask
    if side == 0:
        new = _create(
            s, f, h, slot, old, k, f[r + A_HI], f[r + A_LO], f[r + B_HI], f[r + B_LO], f[r + A_PORT], f[r + B_PORT],
            f[r + VERSION], ts_ns,
        )  # fmt: skip
    else:
        new = _create(
            s, f, h, slot, old, k, f[r + B_HI], f[r + B_LO], f[r + A_HI], f[r + A_LO], f[r + B_PORT], f[r + A_PORT],
            f[r + VERSION], ts_ns,
        )  # fmt: skip
    f[new * WORDS + MARKS] = ORIENTED


def rehash(s: cython.longlong[::1], f: cython.longlong[::1], h: cython.longlong[::1]) -> None:
    """Enter the newest flow of every tuple into an empty table."""
    mask: cython.longlong = (h.shape[0] if cython.compiled else len(h)) - 1
    flow: cython.longlong
    slot: cython.longlong
    r: cython.longlong
    t: cython.longlong
    for flow in range(s[FLOWS]):
        r = flow * WORDS
        slot = _slot_of(s, f, mask, r)
        while h[slot] != 0:
            # A flow that used the tuple before is replaced; it was entered earlier, its number being lower.
            if h[slot] == f[r + BEFORE] + 1:
                break
            slot = (slot + 1) & mask
        t = flow + 1
        h[slot] = t


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _copy(
    out: cython.uchar[::1],
    to: cython.longlong,
    source: cython.const[cython.uchar][::1],
    start: cython.longlong,
    length: cython.longlong,
) -> cython.longlong:
    if length <= 0:
        return 0
    if cython.compiled:
        if to < 0 or start < 0 or length > out.shape[0] - to or length > source.shape[0] - start:
            with cython.gil:
                raise IndexError(f"{length} bytes from {start} of {source.shape[0]} to {to} of {out.shape[0]}")
        memcpy(cython.address(out[to]), cython.address(source[start]), length)
    else:
        out[to : to + length] = source[start : start + length]
    return 0


def gather(
    out: cython.uchar[::1],
    window: cython.const[cython.uchar][::1],
    held: cython.const[cython.uchar][::1],
    kept: cython.const[cython.uchar][::1],
    order: cython.longlong[::1],
    kept_count: int,
    start: cython.longlong[::1],
    length: cython.longlong[::1],
) -> None:
    """Copy pieces one behind the other into out, in the given order of their rows.

    The first kept_count rows have their start in kept, the others in window, or below 0 in held.
    """
    i: cython.longlong
    j: cython.longlong
    n: cython.longlong = order.shape[0] if cython.compiled else len(order)
    to: cython.longlong = 0
    kept_rows: cython.longlong = kept_count
    with cython.nogil:
        for i in range(n):
            j = order[i]
            if j < kept_rows:
                _copy(out, to, kept, start[j], length[j])
            elif start[j] >= 0:
                _copy(out, to, window, start[j], length[j])
            else:
                _copy(out, to, held, -1 - start[j], length[j])
            to += length[j]


def recent(
    s: cython.longlong[::1], f: cython.longlong[::1], pieces: cython.longlong[::1], place: int, low: int, high: int
) -> list[int] | None:
    """The rows, newest first, of this feed's pieces of a side that hold stream offsets from low to below high.

    None if they are not among the newest LOOKED_BACK pieces.
    """
    found: list[int] = []
    steps: cython.longlong = 0
    piece: cython.longlong = f[place + PIECE_LAST]
    p: cython.longlong
    bottom: cython.longlong = low
    top: cython.longlong = high
    while piece >= s[PIECE_FIRST]:
        p = (piece - s[PIECE_FIRST]) * PIECE
        if pieces[p + P_OFFSET] + pieces[p + P_LENGTH] <= bottom:
            break
        if pieces[p + P_OFFSET] < top:
            found.append(int(piece - s[PIECE_FIRST]))
        piece = pieces[p + P_BEFORE]
        steps += 1
        if steps > LOOKED_BACK:
            return None
    return found


def since(
    s: cython.longlong[::1], f: cython.longlong[::1], pieces: cython.longlong[::1], place: int, last: int
) -> list[int]:
    """The rows, newest first, of this feed's pieces of a side behind a row, -1 for all."""
    found: list[int] = []
    row: cython.longlong = f[place + PIECE_LAST] - s[PIECE_FIRST]
    known: cython.longlong = last
    while row > known:
        found.append(int(row))
        row = pieces[row * PIECE + P_BEFORE] - s[PIECE_FIRST]
    return found
