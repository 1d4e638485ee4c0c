"""Pre-training: pseudo-queries made from documents, and an encoder trained on them, without queries or judgments."""
