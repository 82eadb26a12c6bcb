"""Packets to ordered byte streams: headers, fragments, the flow table, reassembly and eviction."""
