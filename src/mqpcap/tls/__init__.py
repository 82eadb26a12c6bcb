"""TLS with the keys of a key log: ciphertext of ``tcp`` to plaintext for ``decode``. See README.md."""

from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.opening import Opener
from mqpcap.tls.session import TlsFacts

__all__ = ["KeyLog", "Opener", "TlsFacts"]
