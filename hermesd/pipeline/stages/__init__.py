"""The stages of a run, one module each, in the order in which a run comes through them."""
