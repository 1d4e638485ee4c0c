"""Feature vectors: SVMlight files, parsed once into memory-mapped stores. Knows nothing of texts, batches or models."""
