"""The HTTP server of `rerank serve`: four APIs, one model thread, and a page for searching."""
