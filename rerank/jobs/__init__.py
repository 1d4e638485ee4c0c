"""What commands do with settings: train folds, score runs, pre-train, distil, sweep and export."""
