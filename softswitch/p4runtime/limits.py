"""What a client may make the service hold."""

MAX_MESSAGE = 64 << 20
"""Longest message taken, bytes: a thousand times the programs here, and batches of half a million entries."""

MAX_UNREAD = 64 << 20
"""What waits on a stream whose client does not read, bytes; packets and errors beyond it are dropped."""
