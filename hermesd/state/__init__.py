"""What is remembered: one SQLite file, written by one thread."""
