"""Muri's public simulator (commit 4e69a78 of its repository).

- `loop`: its event loop, and the policy run that runs on it;
- `muri`, `ranked`: its policies where they are not the product's;
- `speed`: how fast jobs run there;
- `pipeline`, `blossom`: the length of a group's round, and the matching, exactly as it computes them.
"""

from benchmarks.replicas.muri.family import FAMILY

__all__ = ["FAMILY"]
