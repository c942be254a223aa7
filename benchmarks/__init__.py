"""What fills the published pages, by many runs each. What `ina bench` runs is `controller.bench`."""
