from mqpcap.correlate.alignment cimport Alignment, PlacedReply
from mqpcap.correlate.messages cimport MatchResults, Reply, Request

cdef int ANY_NUMBER, ONE_REPLY, UNKNOWN
cdef long long NO_OFFSET

cdef class OpenRequests:
    cdef list ring
    cdef dict indexes_by_key
    cdef long long dropped_count
    cdef Py_ssize_t keyed, acknowledged, last_phantom, acknowledged_phantom
    cdef bint was_restarted
    cdef Request at(self, Py_ssize_t i)
    cdef void add(self, Request q)
    cdef void add_late_start(self)
    cdef void acknowledge(self, Reply r)
    cdef Py_ssize_t own_from(self, Reply r, Py_ssize_t start)
    cdef void look_up(self, PlacedReply p, Alignment c, Py_ssize_t max_keys)
    cdef void forget_keys(self)
    cdef Py_ssize_t settle_below(self, Py_ssize_t place)
    cdef list take_from(self, Py_ssize_t place)
    cdef void restart_late(self, Py_ssize_t place)
    cdef void forget_hole(self, Py_ssize_t place, Py_ssize_t latest)
    cdef void leave_unanswered(self, Alignment c, MatchResults results, Py_ssize_t lowest, Py_ssize_t highest, dict taken, list ambiguous, bint server_has_hole)
