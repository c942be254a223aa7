"""Control of switches: programs, table entries, leases, admission of jobs to one switch or to a tree."""
