"""Fallback servers as processes: started and kept (`process`), shared (`service`), reached (`remote`)."""
