from mqpcap.correlate.alignment cimport Alignment, PlacedReply
from mqpcap.correlate.messages cimport Reply, Request, SideMessage

cdef int ANY_NUMBER, ONE_REPLY
cdef long long NO_ECHO_KEY, NO_OFFSET
