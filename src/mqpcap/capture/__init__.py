"""Files to record offsets, times and link types; see ``inputs`` for what a user may name."""

from mqpcap.capture.inputs import Capture, FoundCaptures, captures
from mqpcap.capture.sources import InputWait
from mqpcap.capture.windows import FileFacts, Note, ResumePoint, Window, WindowReader

__all__ = [
    "Capture",
    "FileFacts",
    "FoundCaptures",
    "InputWait",
    "Note",
    "ResumePoint",
    "Window",
    "WindowReader",
    "captures",
]
