cdef class StreamChunk:
    cdef public long long start, length, offset
    cdef public int side
    cdef public bint is_last, ended, start_known, is_estimated
    cdef public object buffer, packets
