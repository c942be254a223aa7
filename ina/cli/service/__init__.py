"""Commands that ask a controller that runs as a service (`ina controller`)."""
