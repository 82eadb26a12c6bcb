"""Every command as a call with the same name: values and iterators in place of printed lines.

In: captures, as in ``mqpcap.open``, and a filter, as in ``-Y``. Out: tables of pyarrow, dataclasses, iterators. Called
by: users, through ``mqpcap.stats``, ``mqpcap.diff`` and so on; the commands, which give `Inputs` in place of a path.

All calls take the options of ``mqpcap.open`` (``decode_as``, ``show_secrets``, ``bodies``, ``max_memory_bytes``), and
``jobs``. Calls with a filter take the words of the commands, too: ``op="PUBLISH"``, ``since="+30s"``. progress: a
function that is called with the count of bytes read since its last call. notes: a list that gets the notes that a
command writes to stderr. All raise CaptureError for an input that is not a capture file or cannot be read, and
QueryError for a text that is not a filter.
"""
