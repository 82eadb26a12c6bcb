"""How a protocol is described: fields, messages, the protocol itself, and the compiler that makes a program of it."""
