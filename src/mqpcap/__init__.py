"""Packet-capture dissection toolkit for message queues: fq, kokaq, FlyMQ, BlipMQ and BIND 10 msgq."""

__version__ = "0.1.0"
