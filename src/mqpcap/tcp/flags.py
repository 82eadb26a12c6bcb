"""Bits of the TCP flags."""

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MULTIPATH = 256
"""Bit of `Segments.flags`: the packet has an option of Multipath TCP. Not a flag of TCP."""
