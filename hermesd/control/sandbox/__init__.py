"""One-shot containers: one interface, two engines, one contract."""
