"""Feature vectors: SVMlight files, parsed once into memory-mapped stores."""
