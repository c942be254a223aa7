"""Errors of the Horovod-style interface: Horovod's own names, and what else is raised."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks differ, a rank is gone, or an error of the library, which is its cause."""


class NotSupported(NotImplementedError, AttributeError):
    """A part of Horovod that is not there, also for `hasattr`; says what to use instead."""
