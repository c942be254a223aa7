"""Synergy's public simulator (msr-fiddle/synergy, commit 1bb2bed)."""

from benchmarks.replicas.synergy.family import FAMILY

__all__ = ["FAMILY"]
