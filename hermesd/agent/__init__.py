"""The mind: it proposes, and has no way to act."""
