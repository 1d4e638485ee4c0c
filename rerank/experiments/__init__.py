"""The paper's protocol on a collection: data set, folds, train, score, sweep, distil, export; its files and reports."""
