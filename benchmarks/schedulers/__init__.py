"""Makers of the pages on scheduling: policies on traces, beside the public simulators' results."""
