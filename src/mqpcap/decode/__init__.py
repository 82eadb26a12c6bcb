"""Byte streams to columns: which protocol a connection speaks, where messages begin and end, what their fields are."""
