"""The equations of the losses as Python loops over one list of 0-dimensional float64 tensors, without padding.

Autograd through the loops gives the reference gradients; `detach` marks what the equations hold constant.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

List = list[Tensor]


def total(terms: list) -> Tensor:
    return sum(terms, torch.tensor(0.0, dtype=torch.float64))


def softmax_of(logits: List) -> List:
    top = max(x.item() for x in logits)
    exps = [torch.exp(x - top) for x in logits]
    return [e / total(exps) for e in exps]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def discount(rank: float | Tensor) -> float | Tensor:
    return 1 / torch.log2(1 + rank) if isinstance(rank, Tensor) else 1 / math.log2(1 + rank)


def ideal(y: list[float], cutoff: int) -> float:
    return sum((2**label - 1) * discount(r) for r, label in enumerate(sorted(y, reverse=True)[:cutoff], 1))


def split(metric: str, n: int) -> tuple[str, int]:
    name, _, k = metric.partition("@")
    return name, int(k) if k else n


def indicator_metric(rows: list[List], y: list[float], metric: str) -> Tensor:
    name, k = split(metric, len(y))
    b = [1.0 if label >= 1 else 0.0 for label in y]
    e_at = [total([y[j] * row[j] for j in range(len(y))]) for row in rows]
    b_at = [total([b[j] * row[j] for j in range(len(y))]) for row in rows]
    if name == "p":
        return total(b_at[:k]) / k
    if name == "ndcg":
        return total([(2 ** e_at[r - 1] - 1) * discount(r) for r in range(1, min(k, len(y)) + 1)]) / ideal(y, k)
    if name == "rr":
        found, none_above = [], torch.tensor(1.0, dtype=torch.float64)
        for r, b_here in enumerate(b_at[:k], 1):
            found.append(b_here * none_above / r)
            none_above = none_above * (1 - b_here)
        return total(found)
    return total([b_at[i] * total(b_at[: i + 1]) / (i + 1) for i in range(len(y))]) / sum(b)


def position_metric(places: List, y: list[float], metric: str, beta: float, cutoff_offset: float) -> Tensor:
    name, k = split(metric, len(y))
    b = [1.0 if label >= 1 else 0.0 for label in y]
    n = range(len(y))
    if name == "ap":
        seen = [1 + total([b[j] * sigmoid(beta * (places[i] - places[j])) for j in n if j != i]) for i in n]
        return total([b[i] / places[i] * seen[i] for i in n]) / sum(b)
    within = [sigmoid(beta * (k + cutoff_offset - p)) if "@" in metric else torch.ones(()) for p in places]
    if name == "p":
        return total([b[i] * within[i] for i in n]) / k
    if name == "rr":
        first = [
            math.prod([sigmoid(beta * (places[j] - places[i])) for j in n if j != i and b[j]], start=torch.ones(()))
            for i in n
        ]
        return total([b[i] * first[i] / places[i] * within[i] for i in n])
    return total([(2 ** y[i] - 1) * discount(places[i]) * within[i] for i in n]) / ideal(y, k)


def smoothi(s: List, y, metric="ndcg", alpha=1.0, delta=0.1, stop_gradient=True) -> Tensor:
    lowest = min(s, key=lambda x: x.item())
    s = [x - lowest for x in s]
    p = [torch.tensor(1.0, dtype=torch.float64) for _ in s]
    rows = []
    for _ in s:
        rows.append(softmax_of([alpha * s[j] * p[j] for j in range(len(s))]))
        p = [p[j] * (1 - rows[-1][j] - delta) for j in range(len(s))]
        if stop_gradient:
            p = [x.detach() for x in p]
    return 1 - indicator_metric(rows, y, metric)


def neuralsort_rows(s: List, temperature: float) -> list[List]:
    n = len(s)
    spread = [total([(s[j] - s[k]).abs() for k in range(n)]) for j in range(n)]
    return [softmax_of([((n + 1 - 2 * r) * s[j] - spread[j]) / temperature for j in range(n)]) for r in range(1, n + 1)]


def neuralsort(s: List, y, metric="ndcg", temperature=1.0) -> Tensor:
    return 1 - indicator_metric(neuralsort_rows(s, temperature), y, metric)


def expected_gain_metric(rows: list[List], y: list[float], metric: str) -> Tensor:
    name, k = split(metric, len(y))
    if name != "ndcg":
        return indicator_metric(rows, y, metric)
    gains = [total([(2 ** y[j] - 1) * row[j] for j in range(len(y))]) for row in rows]
    return total([gains[r - 1] * discount(r) for r in range(1, min(k, len(y)) + 1)]) / ideal(y, k)


def pirank(s: List, y, metric="ndcg", temperature=1.0) -> Tensor:
    return 1 - expected_gain_metric(neuralsort_rows(s, temperature), y, metric)


def neural_ndcg(s: List, y, metric="ndcg", temperature=1.0) -> Tensor:
    rows, n = neuralsort_rows(s, temperature), range(len(s))
    for _ in range(50):
        columns = [total([row[j] for row in rows]) for j in n]
        rows = [[row[j] / columns[j] for j in n] for row in rows]
        rows = [[x / total(row) for x in row] for row in rows]
    return 1 - expected_gain_metric(rows, y, metric)


def softsort(s: List, y, metric="ndcg", temperature=1.0) -> Tensor:
    ranked = sorted(s, key=lambda x: -x.item())
    return 1 - indicator_metric([softmax_of([-(top - x).abs() / temperature for x in s]) for top in ranked], y, metric)


def approx(s: List, y, metric="ndcg", alpha=1.0, beta=10.0, cutoff_offset=0.5) -> Tensor:
    n = range(len(s))
    places = [1 + total([sigmoid(alpha * (s[j] - s[i])) for j in n if j != i]) for i in n]
    return 1 - position_metric(places, y, metric, beta, cutoff_offset)


def fast_soft_ranks(s: List, strength: float) -> List:
    """The isotonic solution in its min-max form: v_i = min over a <= i of max over b >= i of the mean of a..b."""
    n = len(s)
    order = sorted(range(n), key=lambda i: s[i].item())
    z = [-s[i] / strength for i in order]
    gaps = [z[i] - (n - i) for i in range(n)]
    places = list(s)
    for i in range(n):
        means = [[total(gaps[a : b + 1]) / (b - a + 1) for b in range(i, n)] for a in range(i + 1)]
        places[order[i]] = z[i] - min((max(row, key=Tensor.item) for row in means), key=Tensor.item)
    return places


def fastsort(s: List, y, metric="ndcg", strength=1.0, beta=10.0, cutoff_offset=0.5) -> Tensor:
    return 1 - position_metric(fast_soft_ranks(s, strength), y, metric, beta, cutoff_offset)


def ot(s: List, y, metric="ndcg", epsilon=0.1, beta=10.0, cutoff_offset=0.5) -> Tensor:
    """Plain Sinkhorn, unrolled: 400 sweeps are enough for the epsilon of the tests."""
    n = len(s)
    mean = total(s) / n
    std = (total([(x - mean) ** 2 for x in s]) / n).sqrt()
    x = torch.stack([sigmoid((v - mean) / std * math.pi / math.sqrt(3)) for v in s])
    targets = torch.tensor([(n - m) / (n - 1) for m in range(1, n + 1)], dtype=torch.float64)
    kernel = -((x[:, None] - targets[None, :]) ** 2) / epsilon
    f, g = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for _ in range(400):
        f = -math.log(n) - torch.logsumexp(kernel + g[None, :], 1)
        g = -math.log(n) - torch.logsumexp(kernel + f[:, None], 0)
    plan = torch.exp(kernel + f[:, None] + g[None, :])
    places = [total([n * m * plan[i, m - 1] for m in range(1, n + 1)]) for i in range(n)]
    return 1 - position_metric(places, y, metric, beta, cutoff_offset)


def listnet(s: List, y) -> Tensor:
    wanted = softmax_of([torch.tensor(label, dtype=torch.float64) for label in y])
    return -total([wanted[j] * softmax_of(s)[j].log() for j in range(len(s))])


def softmax(s: List, y) -> Tensor:
    return -total([y[j] / sum(y) * softmax_of(s)[j].log() for j in range(len(s))])


def listmle(s: List, y) -> Tensor:
    order = sorted(range(len(s)), key=lambda i: -y[i])
    ranked = [s[i] for i in order]
    return total([total([torch.exp(x) for x in ranked[i:]]).log() - ranked[i] for i in range(len(s))])


def listap(s: List, y, bins=25, low=-1.0, high=1.0) -> Tensor:
    step = (high - low) / (bins - 1)
    found, seen, ap = torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0)
    for m in range(bins):
        centre = high - step * m
        share = [torch.clamp(1 - (torch.clamp(x, low, high) - centre).abs() / step, min=0) for x in s]
        here = total([share[j] for j in range(len(s)) if y[j] >= 1])
        found, seen = found + here, seen + total(share)
        if seen.item():
            ap = ap + here * found / seen
    return 1 - ap / sum(label >= 1 for label in y)


def true_ap(b: list[bool]) -> float:
    return sum(sum(b[:r]) / r for r in range(1, len(b) + 1) if b[r - 1]) / sum(b)


def lambda_loss(s: List, y, metric="ndcg", weighting="ndcg_loss2", mu=10.0) -> Tensor:
    n = len(s)
    name, k = split(metric, n)
    order = sorted(range(n), key=lambda i: -s[i].item())
    rank = {i: r for r, i in enumerate(order, 1)}
    terms = []
    for i in range(n):
        for j in range(n):
            if not y[i] > y[j]:
                continue
            if name == "ndcg":
                gap = abs(rank[i] - rank[j])
                gains = abs(2 ** y[i] - 2 ** y[j]) / ideal(y, k)
                delta = abs(discount(gap) - discount(gap + 1))
                rho = abs(discount(rank[i]) - discount(rank[j]))
                factor = {"ndcg_loss2": delta, "lambda_rank": rho, "ndcg_loss2++": mu * delta + rho}[weighting]
                weight = n * gains * factor if rank[i] <= k or rank[j] <= k else 0.0
            elif name == "p":
                weight = float(((y[i] >= 1) != (y[j] >= 1)) and ((rank[i] <= k) != (rank[j] <= k)))
            else:
                b = [y[d] >= 1 for d in order]
                swapped = list(b)
                swapped[rank[i] - 1], swapped[rank[j] - 1] = b[rank[j] - 1], b[rank[i] - 1]
                measure = true_ap if name == "ap" else lambda found: true_rr(found, k)
                weight = abs(measure(swapped) - measure(b))
            terms.append(weight * torch.log(1 + torch.exp(s[j] - s[i])))
    return total(terms)


def true_rr(relevant: list[bool], k: int) -> float:
    return next((1 / r for r, found in enumerate(relevant[:k], 1) if found), 0.0)


def pair_mean(s: List, y, cost: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    costs = [cost(s[i], s[j]) for i in range(len(s)) for j in range(len(s)) if y[i] > y[j]]
    return total(costs) / len(costs)


def hinge(s: List, y, margin=1.0, pairs="all") -> Tensor:
    def cost(better: Tensor, worse: Tensor) -> Tensor:
        return torch.clamp(margin - (better - worse), min=0)

    if pairs == "all":
        return pair_mean(s, y, cost)
    relevant = [score for score, label in zip(s, y, strict=True) if label >= 1]
    others = [score for score, label in zip(s, y, strict=True) if label < 1]
    costs = [cost(better, worse) for better, worse in zip(relevant, others, strict=False)]
    return total(costs) / len(costs) if costs else total(s) * 0


def ranknet(s: List, y) -> Tensor:
    return pair_mean(s, y, lambda better, worse: torch.log(1 + torch.exp(worse - better)))


def pairwise_softmax(s: List, y) -> Tensor:
    return pair_mean(s, y, lambda better, worse: 1 - softmax_of([better, worse])[0])


def margin_mse(s: List, y) -> Tensor:
    n = len(s)
    errors = [((s[i] - s[j]) - (y[i] - y[j])) ** 2 for i in range(n) for j in range(i + 1, n)]
    return total(errors) / (n * (n - 1) / 2)


def distill_kl(s: List, y, temperature=1.0) -> Tensor:
    student = softmax_of([x / temperature for x in s])
    teacher = softmax_of([torch.tensor(label / temperature, dtype=torch.float64) for label in y])
    return temperature**2 * total([p * (p.log() - q.log()) for p, q in zip(teacher, student, strict=True)])


def bce(s: List, y) -> Tensor:
    costs = [-torch.log(1 / (1 + torch.exp(-x if label >= 1 else x))) for x, label in zip(s, y, strict=True)]
    return total(costs) / len(costs)


def mse(s: List, y) -> Tensor:
    return total([(x - label) ** 2 for x, label in zip(s, y, strict=True)]) / len(s)


def rank_distil(s: List, y) -> Tensor:
    return pair_mean(s, y, lambda better, worse: torch.log(1 + torch.exp(worse - better)))


def adr_mse(s: List, y, alpha=1.0) -> Tensor:
    errors = []
    for i, x in enumerate(s):
        others = [j for j in range(len(s)) if j != i]
        rank = 1 + sum((y[j] > y[i]) + 0.5 * (y[j] == y[i]) for j in others)
        soft = 1 + total([1 / (1 + torch.exp(-alpha * (s[j] - x))) for j in others])
        errors.append((soft - rank) ** 2 / math.log2(1 + rank))
    return total(errors) / len(errors)
