"""Aggregation trees on any topology: the paths of a job's gradients, and the switches that sum them."""
