"""The cipher suites: their names, and what is read from a name: cipher, size of the key, hashes."""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_PARTS = re.compile(r"(?:AES_(\d+)_(GCM|CCM_8|CCM|CBC)|(CHACHA20)_POLY1305)(?:_SHA(\d*))?$")


class Suite(NamedTuple):
    """A suite; ``mode``: GCM, CCM, CCM_8, CBC or CHACHA20. ``mac``: hash of the MAC of CBC, ``prf``: of the keys."""

    name: str
    mode: str
    key_len: int
    mac: str
    prf: str


@cache
def _names() -> dict[int, str]:
    """The names of the suites that this package opens, as in IANA's registry, by number."""
    return {int(x[:4], 16): x[5:] for x in files(__package__).joinpath("cipher_suites.csv").read_text().split()}


def suite_name(code: int) -> str:
    """The name of a suite, or its number in hexadecimal digits."""
    return _names().get(code, f"0x{code:04X}")


@cache
def suite(code: int) -> Suite | None:
    """A suite by its number, None if this package does not open it.

    >>> suite(0xC027)
    Suite(name='TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256', mode='CBC', key_len=16, mac='sha256', prf='sha256')
    """
    match = _PARTS.search(_names().get(code, ""))
    if match is None:
        return None
    bits, mode, chacha, digest = match.groups()
    mac = f"sha{digest or '1' if digest is not None else '256'}"
    return Suite(match.string, mode or chacha, int(bits or 256) // 8, mac, mac if mac != "sha1" else "sha256")
