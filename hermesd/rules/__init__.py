"""Which events matter and what they start: pure decisions over event, state and now."""
