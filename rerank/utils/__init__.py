"""Utilities: atomic writes, locks, processes, progress and logging.

Knows nothing of ranking. Import from the modules.
"""
