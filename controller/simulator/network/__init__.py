"""Simulation of a cluster's network for the schedulers' simulator: placement, trees, memory, contention."""
