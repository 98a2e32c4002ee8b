"""Where events come from. A source yields events and acts on nothing."""
