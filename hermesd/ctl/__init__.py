"""hermesctl: how a person steers the two processes."""
