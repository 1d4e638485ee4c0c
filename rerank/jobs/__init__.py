"""What commands do with settings: train folds, score runs, pre-train, distil, sweep, export and upload."""
