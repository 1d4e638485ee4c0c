"""The HTTP server of `rerank serve`: the APIs of six servers, one model thread, and a page for searching."""
