"""Pipelines of stages, the last of which answers: fitted on a collection, cross-validated, saved and searched."""
