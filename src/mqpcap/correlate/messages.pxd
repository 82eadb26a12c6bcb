cdef class SideMessage:
    cdef long long row, echo_key, payload_key, offset, end, ts_ns, end_ns, hole_length, ack, asked
    cdef int code
    cdef bint truncated, is_unread

cdef class Request(SideMessage):
    cdef long long reach, last_ack, pause_ns, after_replies
    cdef int kind
    cdef bint was_captured, has_id, in_hole

cdef class Reply(SideMessage):
    cdef long long bit, publish_offset
    cdef bint acks_less, echoes_nothing, may_be_missing, any_number

cdef class MatchResults:
    cdef public object pairs, evidence, states, kinds
    cdef public dict handled_to, confirmed_from
    cdef public long long watched_flow, open_bytes
    cdef public object replay
    cdef void pair(self, long long request_row, long long reply_row, int evidence)
    cdef void state(self, long long row, int state)
