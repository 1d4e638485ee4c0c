"""The formats of collections, one module each. `open_source` imports every module of this folder.

A module that registers its reader with `rerank.data.sources.register` needs no other change.
"""
