"""The folder runs/: its layout, and the settings, manifests and results in it, compared and verified.

Knows nothing of models or of training; never imports torch.
"""
