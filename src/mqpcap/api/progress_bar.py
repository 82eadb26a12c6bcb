"""Shows how much of some captures was read: a bar in a notebook, a line on a terminal, else nothing.

In: the ``progress`` of the package's calls, numbers of bytes. Called by: users, as ``mqpcap.ProgressBar(path)``.
"""

import sys
import time
from typing import Any

from mqpcap.call_options import names_options
from mqpcap.reading import size_bytes
from mqpcap.recording import Paths, open_inputs
from mqpcap.wording import size

UPDATE_S = 0.2
"""Seconds between two updates."""


class ProgressBar:
    """How much of some captures was read; give it to a call as ``progress``.

    >>> import mqpcap
    >>> bar = mqpcap.ProgressBar("pcaps/blipmq/qos1.pcap")
    >>> mqpcap.open("pcaps/blipmq/qos1.pcap", progress=bar).messages.num_rows, bar.read_bytes
    (242, 36770)
    """

    @names_options
    def __init__(self, path: Paths) -> None:
        opened, copies = open_inputs(path)
        self.total_bytes, self.read_bytes = size_bytes(opened), 0
        del copies  # temporary files of bytes and file objects, whose size is known now
        self._shown_s = 0.0
        self._handle: Any = None
        self._display = _notebook_display()

    def __call__(self, read_bytes: int) -> None:
        """Count bytes that were read."""
        self.read_bytes += read_bytes
        now_s = time.monotonic()
        if now_s - self._shown_s < UPDATE_S and self.read_bytes < self.total_bytes:
            return
        self._shown_s = now_s
        if self._handle is not None:
            self._handle.update(self)
        elif self._display is not None:
            self._handle = self._display(self, display_id=True)
        elif sys.stderr.isatty():
            end = "\n" if self.read_bytes >= self.total_bytes else ""
            sys.stderr.write(f"\r{self}{end}")
            sys.stderr.flush()

    def __repr__(self) -> str:
        # A compressed capture gives more bytes than its file has.
        return f"read {size(self.read_bytes)} of {size(max(self.total_bytes, self.read_bytes))}"

    def _repr_html_(self) -> str:
        """The bar, in the colours of the notebook."""
        bar = f'<progress max="{max(self.total_bytes, 1)}" value="{self.read_bytes}" style="width:20em"></progress>'
        return f"{bar} {self!r}"


def _notebook_display() -> Any:
    """IPython's ``display`` in a notebook, None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
