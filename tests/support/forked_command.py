"""``mqpcap``, run by the server of ``command_server``: the same words, folder, environment, streams and end.

A program that shells and terminals can start, in a twentieth of the time in which Python loads the package. It inherits
the connection to the server; SERVER in its environment is the number of the descriptor.
"""

import array
import json
import os
import socket
import sys

SERVER = "MQPCAP_TESTS_COMMAND_SERVER"


def main() -> int:
    environment = dict(os.environ)
    server = socket.socket(fileno=int(environment.pop(SERVER)))
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    streams = array.array("i", [0, 1, 2, theirs.fileno()])
    request = json.dumps([sys.argv[1:], os.getcwd(), environment]).encode()
    server.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    theirs.close()
    status.recv(20)  # the number of its process
    return int(status.recv(20))


if __name__ == "__main__":
    sys.exit(main())
