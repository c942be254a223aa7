"""A cluster's network under the schedulers' simulator: placement, trees, memory, and who slows whom."""
