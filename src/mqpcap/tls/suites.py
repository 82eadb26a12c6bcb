"""The cipher suites: their names, and what is read from a name: cipher, size of the key, hashes."""

import re
from functools import cache
from typing import NamedTuple

_KEY_EXCHANGES = {
    "RSA": "002F 0035 003C 003D 009C 009D C09C C09D C0A0 C0A1 -",
    "DHE_RSA": "0033 0039 0067 006B 009E 009F C09E C09F C0A2 C0A3 CCAA",
    "DHE_DSS": "0032 0038 0040 006A 00A2 00A3 - - - - -",
    "DH_anon": "0034 003A 006C 006D 00A6 00A7 - - - - -",
    "PSK": "008C 008D 00AE - 00A8 00A9 C0A4 C0A5 C0A8 C0A9 CCAB",
    "DHE_PSK": "0090 0091 00B2 - 00AA 00AB C0A6 C0A7 C0AA C0AB CCAD",
    "ECDHE_PSK": "C035 C036 C037 - D001 D002 D005 - D003 - CCAC",
    "ECDHE_ECDSA": "C009 C00A C023 - C02B C02C C0AC C0AD C0AE C0AF CCA9",
    "ECDHE_RSA": "C013 C014 C027 - C02F C030 - - - - CCA8",
    "ECDH_RSA": "C00E C00F C029 - C031 C032 - - - - -",
    "ECDH_ECDSA": "C004 C005 C025 - C02D C02E - - - - -",
    "ECDH_anon": "C018 C019 - - - - - - - - -",
}
_CIPHERS = (
    "AES_128_CBC_SHA", "AES_256_CBC_SHA", "AES_128_CBC_SHA256", "AES_256_CBC_SHA256", "AES_128_GCM_SHA256",
    "AES_256_GCM_SHA384", "AES_128_CCM", "AES_256_CCM", "AES_128_CCM_8", "AES_256_CCM_8", "CHACHA20_POLY1305_SHA256",
)  # fmt: skip
_NAMES = {
    0x1301: "TLS_AES_128_GCM_SHA256", 0x1302: "TLS_AES_256_GCM_SHA384", 0x1303: "TLS_CHACHA20_POLY1305_SHA256",
    0x1304: "TLS_AES_128_CCM_SHA256", 0x1305: "TLS_AES_128_CCM_8_SHA256",
    0xC024: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", 0xC028: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
    0xC026: "TLS_ECDH_ECDSA_WITH_AES_256_CBC_SHA384", 0xC02A: "TLS_ECDH_RSA_WITH_AES_256_CBC_SHA384",
    0x00AF: "TLS_PSK_WITH_AES_256_CBC_SHA384", 0x00B3: "TLS_DHE_PSK_WITH_AES_256_CBC_SHA384",
    0xC038: "TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA384",
} | {
    int(code, 16): f"TLS_{exchange}_WITH_{cipher}"
    for exchange, codes in _KEY_EXCHANGES.items()
    for code, cipher in zip(codes.split(), _CIPHERS, strict=True)
    if code != "-"
}  # fmt: skip
"""The suites of IANA's registry that this package opens."""
_PARTS = re.compile(r"(?:AES_(\d+)_(GCM|CCM_8|CCM|CBC)|(CHACHA20)_POLY1305)(?:_SHA(\d*))?$")


class Suite(NamedTuple):
    """A suite; ``mode``: GCM, CCM, CCM_8, CBC or CHACHA20. ``mac``: hash of the MAC of CBC, ``prf``: of the keys."""

    name: str
    mode: str
    key_len: int
    mac: str
    prf: str


def suite_name(code: int) -> str:
    """The name of a suite, or its number in hexadecimal digits."""
    return _NAMES.get(code, f"0x{code:04X}")


@cache
def suite(code: int) -> Suite | None:
    """A suite by its number, None if this package does not open it.

    >>> suite(0xC027)
    Suite(name='TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256', mode='CBC', key_len=16, mac='sha256', prf='sha256')
    """
    match = _PARTS.search(_NAMES.get(code, ""))
    if match is None:
        return None
    bits, mode, chacha, digest = match.groups()
    mac = f"sha{digest or '1' if digest is not None else '256'}"
    return Suite(match.string, mode or chacha, int(bits or 256) // 8, mac, mac if mac != "sha1" else "sha256")
