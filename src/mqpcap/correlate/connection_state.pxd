from mqpcap.correlate.alignment cimport Alignment
from mqpcap.correlate.messages cimport MatchResults, Reply, Request

cdef int ONE_REPLY, OPTIONAL_REPLY, UNKNOWN
cdef long long NO_OFFSET

cdef class ConnectionState:
    cdef object tables
    cdef int number, following
    cdef bytes kinds
    cdef bint is_assumed, is_contradicted
    cdef bint is_midstream(self)
    cdef void enter(self, int state, Alignment certain)
    cdef void add_pair(self, Request q, Reply r)
    cdef int observe(self, Reply r, long long flow, long long read, MatchResults results)
    cdef bint reclassify(self, Request q, bytes old_kinds, bint is_certain, MatchResults results)
    cdef void leave_open(self, Alignment certain)
