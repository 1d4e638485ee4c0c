"""The formats of collections, one module each. `open_source` imports every module of this folder.

A module that registers its reader with `rerank.data.collections.register` needs no other change.
"""
