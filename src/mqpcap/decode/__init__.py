"""Byte streams to columns: which protocol a connection speaks, where messages begin and end, what their fields are.

``framing`` is the way in from streams, ``columns`` the way out. A connection's protocol is chosen in ``detection``; a
message is searched for after a gap in ``side`` and ``scanning``; a dialect that later messages show is chosen by the
protocol's ``EvidenceRule``, which ``pipeline`` runs.
"""
