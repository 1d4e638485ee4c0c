"""Pipelines of stages; the last stage answers. They are fitted on a collection, cross-validated, saved, searched."""
