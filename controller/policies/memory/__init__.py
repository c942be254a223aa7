"""Divide a switch's aggregator slots among jobs."""
