"""Muri's public simulator (commit 4e69a78 of its repository).

- `loop`: its event loop, and the policy run on it;
- `muri`, `ranked`: its policies where they differ from the product's;
- `speed`: the speeds of jobs there;
- `pipeline`, `blossom`: the length of a group's round, and the matching, exactly as it computes them.
"""

from benchmarks.replicas.muri.family import FAMILY

__all__ = ["FAMILY"]
