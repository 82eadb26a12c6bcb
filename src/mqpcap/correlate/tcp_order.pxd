from mqpcap.correlate.messages cimport MatchResults, Reply, Request, SideMessage

cdef int OPTIONAL_REPLY, UNREAD
cdef long long NEVER, NO_OFFSET

cdef class TcpOrder:
    cdef long long client_read, server_read, acked_to, resume_at, last_ns, pause_ns
    cdef bint skips_silent, client_truncated, server_truncated, is_after_hole, has_waiting, is_deferred
    cdef object waiting_requests, waiting_replies
    cdef public long long held_bytes
    cdef public object replay
    cdef void _add_request(self, Request q)
    cdef void _add_reply(self, Reply r)
    cdef void _add_one_way(self, long long row)
    cdef bint _finish(self, bint ended, bint orderly, bint whole_requests, bint whole_replies)
    cdef Py_ssize_t _open_count(self)
    cdef Py_ssize_t _key_count(self)
    cdef void _forget(self)
    cpdef long long recount(self)
    cpdef long long give_up_all(self)
    cdef void _client_hole(self, long long end, long long ts_ns, bint was_captured)
    cdef void _server_hole(self, long long end, long long ack, long long ts_ns)
    cdef void _note_time(self, long long ts_ns, long long end_ns, bint from_client)
    cdef void _take_request(self, Request q)
    cdef void _take_reply(self, Reply r)
    cdef void other(self, bint from_client, long long end, long long ack, long long ts_ns, long long end_ns)
    cdef void add(self, SideMessage m, bint from_client)
    cdef void release(self, bint all_of_them)
    cdef void defer(self, long long next_ns)
    cpdef bint close(self, bint ended, bint orderly, bint whole_requests, bint whole_replies, long long requests_end, long long replies_end)
