"""Cross-encoders as graphs for a CPU, which take passages of one length: they need no padding and no mask."""
