"""Control of switches: programs and rows, admission of jobs to one or to a tree of them, leases."""
