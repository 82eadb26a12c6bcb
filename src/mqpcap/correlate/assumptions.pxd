from mqpcap.correlate.alignment cimport Alignment, PlacedReply
from mqpcap.correlate.messages cimport Reply, Request

cdef Py_ssize_t MAX_CANDIDATES
cdef int ONE_REPLY
cdef long long NO_OFFSET

cdef class Rounds:
    cdef bint holds_replies, is_denied, is_whole, asked_fixed
    cdef long long waited_count, asked_count, open_count, round_count, lone_pair_count
    cdef long long reply_ns, reply_end, asked_ns, asked_end_ns
    cdef object reply_to_reply, request_to_reply
    cdef void ask(self, Request q)
    cdef void answer(self, Reply r)
    cdef void add_hole(self)
    cdef void add_pair(self, Request q, Reply r)
    cdef long long count_waited(self)
    cdef bint _has_evidence(self)

cdef class Assumptions:
    cdef Alignment certain
    cdef list ring
    cdef object tables
    cdef bytes awaited
    cdef long long replies_before, waited_count
    cdef bint use_publishes
    cdef dict likely, margins
    cdef object replay
    cdef void assume_all(self, Rounds rounds, bint is_closed)
    cdef void _record(self, bint is_kept, str name, str why)
    cpdef bint assume(self, int evidence)
    cdef bint _is_anchor(self, Request q, int evidence)
    cdef bint _place(self, Alignment a, Py_ssize_t place, dict indexes)
    cdef bint _collect(self, list candidates, dict indexes)
    cdef void align_by_cost(self, Py_ssize_t highest, bint is_all, dict taken)
    cdef void assume_first_of_burst(self, list ambiguous, dict taken, long long usual_ns)
    cdef Py_ssize_t _untaken(self, Reply r, Py_ssize_t low, Py_ssize_t high, dict taken)
    cdef bint _is_one_queue(self, Reply r, Py_ssize_t low, Py_ssize_t high)
