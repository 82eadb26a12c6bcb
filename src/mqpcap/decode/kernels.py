# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Loops over whole columns: spans copied together, tape entries grouped by column, values fingerprinted.

``columns`` makes Arrow arrays with them, ``correlate`` compares values by their fingerprints. The same file runs
uncompiled; memoryviews are passed in so that elements are plain integers.
"""

import sys

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy


@cython.boundscheck(False)
def gather(
    buf: cython.const[cython.uchar][::1],
    rows: cython.const[cython.int][::1],
    start: cython.const[cython.longlong][::1],
    length: cython.const[cython.longlong][::1],
    target: cython.uchar[::1],
    offsets: cython.int[::1],
) -> None:
    """Copy spans of ``buf`` to ``target``, without space between them; ``offsets`` gets the start of each row's value.

    ``rows``, ascending, are the rows with a value; all other rows are empty. ``offsets`` has one element more than
    there are rows. Raises IndexError if ``target`` is too small or a span lies outside ``buf``.
    """
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    position: cython.longlong = 0
    n: cython.Py_ssize_t = len(offsets) - 1
    count: cython.Py_ssize_t = len(rows)
    if n < 0 or count > len(start) or count > len(length):
        raise IndexError(f"{count} rows of {n} with {len(start)} starts and {len(length)} lengths")
    with cython.nogil:
        for i in range(count):
            if rows[i] < row or rows[i] >= n:
                with cython.gil:
                    raise IndexError(f"row {rows[i]} comes after row {row - 1} of {n}")
            while row <= rows[i]:
                offsets[row] = cython.cast(cython.int, position)
                row += 1
            if length[i] > 0:
                if start[i] < 0 or length[i] > buf.shape[0] - start[i] or length[i] > target.shape[0] - position:
                    with cython.gil:
                        raise IndexError(
                            f"{length[i]} bytes from {start[i]} of {len(buf)} to {position} of {len(target)}"
                        )
                if cython.compiled:
                    memcpy(cython.address(target[position]), cython.address(buf[start[i]]), length[i])
                else:
                    target[position : position + length[i]] = buf[start[i] : start[i] + length[i]]
                position += length[i]
        while row <= n:
            offsets[row] = cython.cast(cython.int, position)
            row += 1


@cython.boundscheck(False)
def group(
    col: cython.const[cython.int][::1],
    row: cython.const[cython.int][::1],
    a: cython.const[cython.longlong][::1],
    b: cython.const[cython.longlong][::1],
    filled: cython.Py_ssize_t,
    bounds: cython.longlong[::1],
    to_row: cython.int[::1],
    to_a: cython.longlong[::1],
    to_b: cython.longlong[::1],
) -> None:
    """Sort tape entries by column (a counting sort): column c has the entries ``bounds[c]`` to ``bounds[c + 1]``.

    ``bounds`` has one element more than there are columns. Entries of a column keep their order. Raises IndexError if
    the arrays are too small for ``filled`` entries.
    """
    i: cython.Py_ssize_t
    c: cython.Py_ssize_t
    to: cython.Py_ssize_t
    n: cython.Py_ssize_t = len(bounds) - 1
    entries_before: cython.longlong = 0
    count: cython.longlong
    if n < 0 or filled > min(map(len, (col, row, a, b, to_row, to_a, to_b))):
        raise IndexError(f"{filled} entries are more than there is room for")
    with cython.nogil:
        for c in range(n + 1):
            bounds[c] = 0
        for i in range(filled):
            bounds[col[i]] += 1
        for c in range(n + 1):
            count = bounds[c]
            bounds[c] = entries_before
            entries_before += count
        for i in range(filled):
            to = bounds[col[i]]
            to_row[to] = row[i]
            to_a[to] = a[i]
            to_b[to] = b[i]
            bounds[col[i]] = to + 1
        for c in range(n, 0, -1):
            bounds[c] = bounds[c - 1]
        bounds[0] = 0


_PRIME_A = cython.declare(cython.const[cython.longlong], 2147483647)
_PRIME_B = cython.declare(cython.const[cython.longlong], 2147483629)
_HIGH = cython.declare(cython.const[cython.longlong], 4294967296)
_WORD = cython.declare(cython.const[cython.ulonglong], 0xFFFFFFFFFFFFFFFF)
PRINT_WORDS = 256
"""Words of four bytes in a block; ``fingerprints`` takes two keys for each and two more."""
_BLOCK = cython.declare(cython.const[cython.longlong], 1024)


def fingerprints(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    keys: cython.const[cython.ulonglong][::1],
    base_a: cython.longlong,
    base_b: cython.longlong,
    target: cython.longlong[::1],
) -> None:
    """Write a number per value to ``target``: equal for equal bytes; others collide by chance only, once in 2**60.

    Each block becomes two numbers of 31 bits by multilinear hashing: the sum of its words, each times a secret key of
    its own. The numbers of a value's blocks are the coefficients of two polynomials over two primes, at secret bases.
    """
    i: cython.Py_ssize_t
    k: cython.longlong
    end: cython.longlong
    stop: cython.longlong
    j: cython.Py_ssize_t
    a: cython.longlong
    b: cython.longlong
    sum_a: cython.ulonglong
    sum_b: cython.ulonglong
    four: cython.uint = 0
    word: cython.ulonglong
    n: cython.Py_ssize_t = len(target)
    size: cython.Py_ssize_t = len(data)
    half: cython.Py_ssize_t = len(keys) // 2
    if 4 * half <= _BLOCK:
        raise IndexError(f"{half} keys are fewer than a block has words")
    with cython.nogil:  # one loop: a block is hashed in registers
        for i in range(n):
            k = offsets[i]
            end = offsets[i + 1]
            a = end - k + 1
            b = a
            while k < end:
                stop = end if end - k < _BLOCK else k + _BLOCK
                if k < 0 or stop > size:
                    with cython.gil:
                        raise IndexError(f"bytes {k} to {stop} of {size}")
                sum_a = sum_b = 0
                j = 0
                with cython.boundscheck(False):  # the block is inside, and so are its keys
                    while k + 4 <= stop:
                        if cython.compiled:
                            memcpy(cython.address(four), cython.address(data[k]), 4)
                        else:
                            four = int.from_bytes(data[k : k + 4], sys.byteorder)
                        sum_a = (sum_a + keys[j] * four) & _WORD
                        sum_b = (sum_b + keys[half + j] * four) & _WORD
                        j += 1
                        k += 4
                word = 0
                while k < stop:
                    word = word << 8 | data[k]
                    k += 1
                sum_a = (sum_a + keys[j] * word) & _WORD
                sum_b = (sum_b + keys[half + j] * word) & _WORD
                a = (a * base_a + cython.cast(cython.longlong, sum_a >> 33) + 1) % _PRIME_A
                b = (b * base_b + cython.cast(cython.longlong, sum_b >> 33) + 1) % _PRIME_B
            target[i] = a * _HIGH + b
