"""Counts rows of a capture while it is read: sums and percentiles by group, producers, consumers, errors.

No module here keeps rows: memory is bounded by the number of groups, whatever the length of the capture.
"""
