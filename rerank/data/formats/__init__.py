"""The formats of collections, one module each, which registers its reader: `open_source` imports all of this folder."""
