"""Atomic writes, locks, processes, progress and logging. Knows nothing of ranking; import from the modules."""
