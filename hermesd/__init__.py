"""hermesd: an on-call engineer that lives on a Linux server."""

__version__ = "0.1.0"
