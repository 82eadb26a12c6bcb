"""Runs commands, each in a fork of this process, which has made their imports: each takes a tenth of the time so.

``running.run`` starts this and sends, for each command, its folder and words with the descriptors it shall have for
stdin, stdout and stderr; told back are the process's number and how it ended.
"""

import json
import os
import pkgutil
import runpy
import socket
import struct
import sys
from contextlib import suppress


def load() -> None:
    """Import what commands import; not what needs Scapy or Spark."""
    from mqpcap.cli.process import NoPandas, settle_in

    settle_in()
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401 - what is imported stays for the forks

    import mqpcap

    for module in pkgutil.walk_packages(mqpcap.__path__, "mqpcap."):
        if not module.name.startswith(("mqpcap.scapy", "mqpcap.spark", "mqpcap.__main__", "mqpcap.capture.live")):
            __import__(module.name)
    sys.meta_path.remove(NoPandas)  # as each command finds it, and matplotlib needs it
    with suppress(ImportError):
        import matplotlib.backends.backend_svg
        import matplotlib.figure  # noqa: F401


def next_command(link: socket.socket) -> list[str] | None:
    """The words of the command that this process, a fork, is to be; None when nobody asks any more."""
    while True:
        said, streams, _, _ = socket.recv_fds(link, 1 << 16, 3)
        if not said:
            return None
        while not said.endswith(b"\n"):
            said += link.recv(1 << 16)
        folder, *words = json.loads(said)
        child = os.fork()
        if not child:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            link.close()
            os.chdir(os.fsencode(folder))
            return words
        for stream in streams:
            os.close(stream)
        link.sendall(struct.pack("i", child))
        link.sendall(struct.pack("i", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


if __name__ == "__main__":
    load()
    words = next_command(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        sys.argv = ["mqpcap", *words]
        runpy.run_module("mqpcap", run_name="__main__", alter_sys=True)
