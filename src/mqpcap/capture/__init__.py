"""Capture files to windows of packets: offsets, times and link types; ``inputs`` resolves what a user names."""

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
