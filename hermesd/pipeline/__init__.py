"""From an accepted event to an ended run: inbox, dispatcher, runner, stages."""
