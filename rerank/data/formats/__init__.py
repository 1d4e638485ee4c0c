"""The formats of collections, one module each. Import a new one here: its reader has the decorator `register`."""

from rerank.data.formats.beir import BeirFolder
from rerank.data.formats.irds import IrDataset

FORMATS = (BeirFolder, IrDataset)
"""The readers that are asked last, in this order."""
