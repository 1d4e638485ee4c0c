"""The paper's protocol on a collection: folds, training, scoring, sweeps, distillation, export; files and reports."""
