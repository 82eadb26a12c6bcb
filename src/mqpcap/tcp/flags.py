"""Bits of the TCP flags."""

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
