from mqpcap.correlate.messages cimport MatchResults, Reply, Request
from mqpcap.correlate.tcp_order cimport TcpOrder

cdef int ONE_REPLY, OPTIONAL_REPLY, UNKNOWN
cdef long long NO_ECHO_KEY, NO_OFFSET
