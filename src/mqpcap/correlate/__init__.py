"""Which reply answers which request, and which publish a delivery came from."""
