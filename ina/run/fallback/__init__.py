"""Fallback servers: as processes (`process`), shared by processes (`remote`), at testbeds (`testbed`)."""
