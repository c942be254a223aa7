"""Lucid's public simulator."""

from benchmarks.replicas.lucid.family import FAMILY

__all__ = ["FAMILY"]
