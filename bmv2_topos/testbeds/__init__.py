"""Testbeds, which run topologies: in virtual time (with jobs), in namespaces, in Mininet, or as one BMv2."""
