"""Rows of a capture counted as they are read: groups with sums and percentiles, and who produces, consumes, fails.

Nothing here keeps rows: memory is bounded by the number of groups, whatever the capture's length.
"""
