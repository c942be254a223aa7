"""Ranks of a job meet: over TCP, in messages of one line, at a point that the launcher of the job keeps."""
