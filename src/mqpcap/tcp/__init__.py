"""Packets to ordered byte streams: headers, fragments, the flow table, reassembly and eviction.

A *hole* is a run of missing bytes that may still arrive; a *gap* is a hole that was given up.
"""
