cdef class ConnectionState:
    cdef public long long flow
    cdef public int client
    cdef public bint decided
    cdef public object sides, protocol, identified_by, proxied, foreign_protocol, pending, evidence
