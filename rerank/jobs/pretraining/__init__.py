"""Pre-training: pseudo-queries made from documents, and an encoder trained on them (`pretrain.pretrain`).

It reads no query, judgment or fold.
"""
