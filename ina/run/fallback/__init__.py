"""Fallback servers: started and restarted (`process`), shared (`service`), connected to (`remote`)."""
