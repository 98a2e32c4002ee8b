"""Programs that run inside containers, on descriptors that the stub resolved. Never in a daemon."""
