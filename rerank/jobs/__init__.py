"""What commands do with settings: train folds, score runs, distil, sweep and export."""
