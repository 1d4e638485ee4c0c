"""Helpers of the documentation site."""
