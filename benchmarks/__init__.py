"""Worker programs of `ina bench`."""
