"""The network part of the simulator: placement, trees, switch memory and contention of jobs."""
