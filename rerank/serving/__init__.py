"""The HTTP server, and its page for searching."""
