"""Files to record offsets, times and link types; see ``inputs`` for what a user may name."""

from mqpcap.capture.inputs import Capture, Found, captures
from mqpcap.capture.sources import Waiting
from mqpcap.capture.windows import Entry, FileFacts, Note, Reader, Window

__all__ = ["Capture", "Entry", "FileFacts", "Found", "Note", "Reader", "Waiting", "Window", "captures"]
