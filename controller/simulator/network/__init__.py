"""A cluster's network under the schedulers' simulator: placement, trees, memory, and contention."""
