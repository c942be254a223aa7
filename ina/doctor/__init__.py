"""Examination of a cluster for ``ina doctor``: facts of its machines, trial jobs, and the faults found."""
