"""A loss of your own: custom_loss.py [COLLECTION [ENCODER [EPOCHS]]], or rerank train --plugin custom_loss --loss …"""

import sys

from torch import Tensor

import rerank
from rerank.config import TrainingSettings


@rerank.losses.loss("squared_margin")  # from here on it has a name, and `margin` is a hyperparameter of it
def squared_margin(scores: Tensor, labels: Tensor, mask: Tensor | None = None, *, margin: float = 1.0) -> Tensor:
    """Penalises pairs in which the more relevant document does not score `margin` above the other: (lists,)."""
    real = labels >= 0 if mask is None else mask  # not padding
    pairs = (labels[:, :, None] > labels[:, None, :]) & real[:, :, None] & real[:, None, :]
    return (pairs * (margin - scores[:, :, None] + scores[:, None, :]).clamp(min=0) ** 2).sum(dim=(1, 2))


def main(collection: str = "my-collection", encoder: str = "bert-base-uncased", epochs: str = "20") -> None:
    training = TrainingSettings(epochs=int(epochs))
    print(rerank.train(rerank.Config(collection, encoder=encoder, loss="squared_margin", training=training), "1").path)


if __name__ == "__main__":
    main(*sys.argv[1:])
