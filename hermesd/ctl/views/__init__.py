"""What people see: pure functions from a payload to lines and tables."""
