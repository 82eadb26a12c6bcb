from mqpcap.correlate.messages cimport Reply, Request

cdef int ANY_NUMBER, ONE_REPLY
cdef long long NO_ECHO_KEY

cdef class PlacedReply:
    cdef Reply reply
    cdef Py_ssize_t low, high, limit, named, least, own_from, fixed
    cdef double unseen_cost

cdef class Alignment:
    cdef list ring, placed
    cdef object accepted
    cdef bint echoes, use_ids, use_publishes
    cdef Py_ssize_t start, low, high, far
    cpdef void restart(self, Py_ssize_t place)
    cdef int _kind(self, Py_ssize_t i)
    cdef Py_ssize_t _next(self, Py_ssize_t i)
    cpdef Py_ssize_t farthest(self)
    cpdef bint fits(self, Py_ssize_t i, Reply r, Py_ssize_t named)
    cdef Py_ssize_t _first(self, PlacedReply p, Py_ssize_t low, Py_ssize_t high, Py_ssize_t x, Py_ssize_t y, Py_ssize_t most)
    cdef Py_ssize_t _last(self, PlacedReply p, Py_ssize_t first, Py_ssize_t high, Py_ssize_t x, Py_ssize_t y)
    cpdef bint add(self, PlacedReply p)
    cdef void take_first_of_queue(self)
    cpdef list settle(self, Py_ssize_t x, Py_ssize_t y)
    cdef long long offset_at(self, Py_ssize_t i)
    cdef void record(self, object replay)
