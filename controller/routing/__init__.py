"""Which switches a job's gradients climb and which of them sum: aggregation trees on any topology."""
