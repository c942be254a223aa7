"""Limits of the memory that a client can make the service use."""

MAX_MESSAGE = 64 << 20
"""Longest message taken, bytes: a thousand times the programs here, and batches of half a million entries."""

MAX_UNREAD = 64 << 20
"""Most data waiting on a stream whose client does not read, bytes; further packets and errors are dropped."""
