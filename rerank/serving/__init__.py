"""The HTTP server of `rerank serve`: four dialects, one model thread, and a page for searching."""
