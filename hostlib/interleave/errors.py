"""Errors of jobs that take turns."""

from __future__ import annotations

from hostlib.errors import InaError


class GroupError(InaError, RuntimeError):
    """A group or a place in it that makes no sense."""


class GroupBroken(InaError, RuntimeError):
    """A job of the group is gone, or keeps the others waiting; the message names job, rank and reason."""
