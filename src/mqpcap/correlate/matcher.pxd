from mqpcap.correlate.alignment cimport Alignment, PlacedReply
from mqpcap.correlate.assumptions cimport Assumptions, Rounds
from mqpcap.correlate.client_keys cimport ClientKeys
from mqpcap.correlate.connection_state cimport ConnectionState
from mqpcap.correlate.messages cimport MatchResults, Reply, Request
from mqpcap.correlate.open_requests cimport OpenRequests
from mqpcap.correlate.tcp_order cimport TcpOrder

cdef int ANY_NUMBER, ONE_REPLY, OPTIONAL_REPLY, UNKNOWN
cdef long long NEVER, NO_OFFSET
