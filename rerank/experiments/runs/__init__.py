"""The folder runs/: its layout, and its settings, manifests and results, which are compared and verified."""
