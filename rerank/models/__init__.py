"""Models: cross-encoders for text and networks for feature vectors, and how candidates are scored with them."""
