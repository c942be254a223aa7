"""Control of switches: what one serves, admission of jobs to one or to a tree of them, leases."""
