"""What the training loop works on: a collection or feature sets, their folds, and the task of a fold."""
