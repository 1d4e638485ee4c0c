"""The folder runs/: its layout, and the settings, manifests and results in it, compared and verified."""
