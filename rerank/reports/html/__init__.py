"""The HTML page of a collection's experiments: one file that needs no other. Knows nothing of how charts are drawn."""
