"""Atomic writes, locks, worker processes, progress, logging and registries. Import from the modules."""
