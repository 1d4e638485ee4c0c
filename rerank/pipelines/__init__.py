"""Pipelines: stages, of which the last one answers; fitted on a collection, cross-validated, saved, and searched."""
