"""Makers of the published pages, by many runs each. `ina bench` runs `ina.bench`."""
