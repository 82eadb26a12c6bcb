"""Files to record offsets, times and link types; see ``inputs`` for what a user may name."""

from mqpcap.capture.inputs import Capture, FoundCaptures, captures
from mqpcap.capture.sources import InputWait
from mqpcap.capture.windows import Entry, FileFacts, Note, Window, WindowReader

__all__ = ["Capture", "Entry", "FileFacts", "FoundCaptures", "InputWait", "Note", "Window", "WindowReader", "captures"]
