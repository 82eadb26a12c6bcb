"""Byte streams to columns: which protocol a connection speaks, where messages begin and end, what their fields are.

Order of work: ``detection`` chooses the protocol of a connection, ``framing`` (``side``, ``scanning``) finds its
messages, ``evidence`` decides the dialect if later messages show it, ``columns`` reads the fields.
"""
