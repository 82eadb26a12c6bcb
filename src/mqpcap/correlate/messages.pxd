cdef class Request:
    cdef long long row, echo_key, payload_key, offset, end, reach, first_ack, last_ack, ts_ns, end_ns, pause_ns
    cdef long long asked, after_replies
    cdef int code, kind
    cdef bint has_id, in_hole, truncated, is_unread

cdef class Reply:
    cdef long long row, bit, echo_key, payload_key, offset, end, ack, ts_ns, end_ns, publish_offset, hole_length, asked
    cdef int code
    cdef bint echoes_nothing, may_be_missing, any_number, truncated

cdef class MatchResults:
    cdef public object pairs, evidence, states, kinds
    cdef public dict handled_to, confirmed_from
    cdef public long long watched_flow, open_bytes
    cdef public object replay
    cdef void pair(self, long long request_row, long long reply_row, int evidence)
    cdef void state(self, long long row, int state)
