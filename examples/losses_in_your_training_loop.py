"""Optimises NDCG@5 in a plain PyTorch loop.

    python examples/losses_in_your_training_loop.py

The losses need only torch.
"""

import torch

import rerank


def main() -> None:
    # 32 queries with 20 documents each, of 8 features; a hidden direction decides the relevance (0, 1 or 2).
    torch.manual_seed(0)
    features = torch.randn(32, 20, 8)
    labels = (features @ torch.randn(8)).div(2).round().clamp(0, 2)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(100):
        loss = rerank.losses.smoothi(model(features)[:, :, 0], labels, metric="ndcg@5").mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: 1 - smooth NDCG@5 = {loss.item():.3f}")


if __name__ == "__main__":
    main()
