cdef class Side:
    cdef public long long flow, framed_to, gap, messages, message_end
    cdef public int index, layout, step
    cdef public bint resynced
    cdef public object stop_reason, partial, buffered_chunk, skipped_range, open_since_ns
