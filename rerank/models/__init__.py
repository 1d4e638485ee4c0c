"""Models: cross-encoders for text and networks for feature vectors, and how candidates are scored with them.

They know nothing of losses, of training or of the files of a run.
"""
