"""A loss of your own, for a collection, an encoder and a number of epochs.

    python examples/custom_loss.py my-collection bert-base-uncased 1

`rerank train --plugin custom_loss --loss squared_margin --collection …`, in this folder, trains with it too.
"""

import sys

from torch import Tensor

import rerank
from rerank.config import TrainingSettings


@rerank.losses.loss("squared_margin")  # registers the name; `margin` is a hyperparameter
def squared_margin(scores: Tensor, labels: Tensor, mask: Tensor | None = None, *, margin: float = 1.0) -> Tensor:
    """Penalises pairs in which the more relevant document does not score `margin` above the other: (lists,)."""
    scores, labels, mask, _ = rerank.losses.prepare_inputs(scores, labels, mask)  # mask: False for padding
    pairs = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    return (pairs * (margin - scores[:, :, None] + scores[:, None, :]).clamp(min=0) ** 2).sum(dim=(1, 2))


def main(collection: str = "my-collection", encoder: str = "bert-base-uncased", epochs: str = "20") -> None:
    training = TrainingSettings(epochs=int(epochs))
    print(rerank.train(rerank.Config(collection, encoder=encoder, loss="squared_margin", training=training), "1").path)


if __name__ == "__main__":
    main(*sys.argv[1:])
