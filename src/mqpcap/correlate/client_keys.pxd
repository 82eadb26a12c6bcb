from mqpcap.correlate.messages cimport Reply, Request

cdef class Publish:
    cdef long long offset

cdef class ClientKeys:
    cdef set keys, ids
    cdef dict publishes
    cdef long long publish_count
    cdef bint ids_repeat, publishes_repeat, has_forgotten
    cdef Py_ssize_t count(self)
    cdef void forget(self)
    cdef void add(self, Request q)
    cdef long long publish_offset(self, Reply r)
    cdef bint may_be_used(self, long long key)
    cdef bint has_unique_ids(self)
    cdef bint has_unique_publishes(self)
    cdef bint publishes_differ(self)
