"""Makers of the pages on scheduling: policies on traces, beside what the public simulators print."""
