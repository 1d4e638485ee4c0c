"""Plots by how much SmoothI's smooth NDCG exceeds 1 on lists in the ideal order, and prints the numbers.

    python -m scripts.paper.smooth_ndcg_excess docs/smooth_ndcg_excess.svg

The true NDCG of every list is 1. The first panel has normal scores, sorted by label; the second one gives all relevant
documents one score and all others another. Both are functions of alpha times the standard deviation of the scores. The
tables after the first one have the largest smooth NDCG of a list with one relevant document, the norm of the gradient
on lists of two scores, and the gradient on a list with three grades.
"""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from rerank.evaluation.tables.table import aligned
from rerank.losses import rank_indicators, smoothi

LISTS = ((2, 4), (2, 6), (4, 16), (10, 100))
"""Relevant documents and all documents of a list; all grades are 0 or 1."""

PRODUCTS = 10 ** torch.linspace(-1, 3, 81, dtype=torch.float64)
"""alpha times the standard deviation of the scores."""

DRAWS = 200


def labels_of(relevant: int, documents: int, lists: int) -> Tensor:
    """The first documents are relevant."""
    return (torch.arange(documents) < relevant).double().expand(lists, -1)


def normal_scores(relevant: int, documents: int) -> Tensor:
    """Sorted draws with a mean of 0 and a standard deviation of 1: (DRAWS, documents)."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(DRAWS, documents, generator=generator, dtype=torch.float64)
    return standardised(scores.sort(dim=1, descending=True).values)


def two_scores(relevant: int, documents: int) -> Tensor:
    """One score for the relevant documents and one for the others: (1, documents)."""
    return standardised(labels_of(relevant, documents, 1))


def standardised(scores: Tensor) -> Tensor:
    """The scores of each list with a mean of 0 and a standard deviation of 1."""
    centred = scores - scores.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt()


def smooth_ndcg(scores: Tensor, relevant: int, products: Tensor = PRODUCTS) -> list[float]:
    """The mean smooth NDCG of the lists, for each product."""
    labels = labels_of(relevant, scores.shape[1], len(scores))
    return [(1 - smoothi(scores, labels, alpha=product)).mean().item() for product in products.tolist()]


def most_of_one(scores: Tensor, product: float) -> float:
    """The largest sum of a document's indicators over the ranks; the mean over the lists."""
    lowest = scores.amin(dim=1, keepdim=True)
    return rank_indicators(scores - lowest, alpha=product).sum(dim=1).amax(dim=1).mean().item()


def bound(relevant: int, documents: int) -> float:
    """The smooth NDCG if every rank had a relevant document."""
    discounts = 1 / torch.log2(torch.arange(documents, dtype=torch.float64) + 2)
    return (discounts.sum() / discounts[:relevant].sum()).item()


def norms(relevant: int, documents: int, product: float) -> tuple[float, float]:
    """The norm of the gradient on a list of two scores, and with one relevant document swapped for another one.

    It is divided by the product, so that it is the gradient with respect to alpha times the scores.
    """
    right = two_scores(relevant, documents)
    wrong = right.clone()
    wrong[0, relevant - 1], wrong[0, relevant] = right[0, relevant], right[0, relevant - 1]
    found = []
    for scores in (right, wrong):
        scores = scores.requires_grad_()
        values = smoothi(scores, labels_of(relevant, documents, 1), alpha=product)
        (gradient,) = torch.autograd.grad(values.sum(), scores)
        found.append(gradient.norm().item() / product)
    return found[0], found[1]


def gradient_rows() -> list[list[str]]:
    """A row for each product: both norms for each list."""
    pairs = {product: [norms(r, n, product) for r, n in LISTS] for product in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)}
    return [[f"{product:g}", *(f"{a:.4f}, {b:.4f}" for a, b in found)] for product, found in pairs.items()]


def single_rows() -> list[list[str]]:
    """The largest smooth NDCG of one relevant document above n - 1 tied ones, and alpha times the gap there."""
    rows = []
    for documents in (2, 4, 6, 16, 100):
        gaps = torch.linspace(0, 40, 401, dtype=torch.float64)
        scores = gaps[:, None] * labels_of(1, documents, 1)
        values = 1 - smoothi(scores, labels_of(1, documents, len(gaps)))
        top = int(values.argmax())
        rows.append([str(documents), f"{values[top].item():.2f}", f"{gaps[top].item():.1f}"])
    return rows


def grade_rows() -> list[list[str]]:
    """The gradient of each grade's documents: two of grade 2, tied at a gap, two of grade 1 at 0.5, four of 0 at 0."""
    labels = torch.tensor([[2, 2, 1, 1, 0, 0, 0, 0]], dtype=torch.float64)
    rows = []
    for gap in (1.0, 3.0, 10.0, 30.0, 100.0):
        scores = torch.tensor([[gap, gap, 0.5, 0.5, 0, 0, 0, 0]], dtype=torch.float64).requires_grad_()
        values = smoothi(scores, labels)
        (gradient,) = torch.autograd.grad(values.sum(), scores)
        rows.append([f"{gap:g}", f"{1 - values.item():.2f}", *(f"{gradient[0, i].item():+.4f}" for i in (0, 2, 4))])
    return rows


def main(path: str) -> None:
    """Draws both panels, saves the figure and prints the tables."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    rows = [["scores", "documents (relevant)", "largest", "at alpha x std", "most on one document", "bound"]]
    titles = {"normal scores": normal_scores, "two scores": two_scores}
    for (title, make), axes in zip(titles.items(), panels, strict=True):
        for relevant, documents in LISTS:
            scores = make(relevant, documents)
            values = smooth_ndcg(scores, relevant)
            axes.plot(PRODUCTS, values, label=f"{documents} ({relevant} relevant)")
            top = max(range(len(values)), key=values.__getitem__)
            product = PRODUCTS[top].item()
            at = f"{product:.1f}" if top < len(values) - 1 else f"{product:.0f} and above"
            found = [
                f"{values[top]:.2f}",
                at,
                f"{most_of_one(scores, product):.2f}",
                f"{bound(relevant, documents):.2f}",
            ]
            rows.append([title, f"{documents} ({relevant})", *found])
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(xscale="log", title=title, xlabel="alpha x standard deviation of the scores")
    panels[0].set_ylabel("smooth NDCG (the true one is 1)")
    panels[0].legend(title="documents of a list", fontsize=8)
    figure.tight_layout()
    plt.rcParams.update({"svg.hashsalt": "excess", "svg.fonttype": "none"})  # the same file each time, and a small one
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.endswith(".svg") else None)
    print(aligned(rows), end="\n\n")
    print(aligned([["documents (1 relevant)", "largest", "at alpha x gap"], *single_rows()]), end="\n\n")
    print(
        aligned([["alpha x std", *(f"{n} ({r}), in order, swapped" for r, n in LISTS)], *gradient_rows()]), end="\n\n"
    )
    print(aligned([["alpha x gap", "smooth NDCG", "gradient of grade 2", "of grade 1", "of grade 0"], *grade_rows()]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.paper.smooth_ndcg_excess OUT.svg")
    main(sys.argv[1])
