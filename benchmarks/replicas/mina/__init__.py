"""MINA's public simulator (INFOCOM'25): jobs that take turns at switches, one sum after the other.

A job gets hosts (`hosts`), a tree of switches (`trees`), and for each of its sums these switches or none
(`steps`, with the models of jobs); `cluster` runs a queue of jobs, `fabric` has switches and random numbers.
``python -m benchmarks.replicas.mina CLONE`` compares with the published results.
"""
