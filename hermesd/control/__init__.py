"""The hands: the executor's side of the wall. Nothing outside this package can act on the machine."""
