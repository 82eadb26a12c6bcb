"""Words for people: safe on a terminal, one line, the right unit."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.wording import error_line, is_out_of_memory, plural, shown, size


@given(st.text())
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    assert shown("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert shown(text).isprintable()
    assert not text.isprintable() or shown(text) == text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.pcap"), "a.pcap: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "out of memory; --max-memory and --jobs bound what is held"),
        (ValueError("two\n  lines"), "two lines"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_is_one_line(error: Exception, said: str) -> None:
    assert error_line(error) == said


def test_sizes_change_their_unit_where_the_digits_would_be_four() -> None:
    sizes = (0, 999, 1000, 999_949, 999_950, 10**9, 10**15)

    assert [*map(size, sizes)] == ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.0 GB", "1000.0 TB"]
    assert (plural(0, "byte"), plural(1, "is", "are"), plural(2, "is", "are")) == ("0 bytes", "1 is", "2 are")


def test_a_lack_of_memory_is_told_by_whoever_met_it() -> None:
    """glibc's linker, CPython's threads, errno 12 and numpy, which raises an ImportError of its own."""
    linker = ImportError("headers.cpython-311.so: failed to map segment from shared object")
    numpy_error = ImportError("Importing the numpy C-extensions failed")
    numpy_error.__cause__ = linker
    lacking = [MemoryError(), linker, numpy_error, RuntimeError("can't start new thread"), OSError(12, os.strerror(12))]

    assert all(map(is_out_of_memory, lacking))
    assert {error_line(error) for error in lacking} == {"out of memory; --max-memory and --jobs bound what is held"}
    assert not any(map(is_out_of_memory, [None, ImportError("No module named x"), OSError(28, "No space left")]))
