"""The Newton steps of the transport plan solve their linear system."""

import pytest
import torch

from rerank.losses import soft_permutation
from rerank.losses.kernels import sinkhorn


@pytest.mark.parametrize("epsilon", [1.0, 0.03])
def test_a_newton_step_solves_its_system_in_lists_of_all_lengths(epsilon: float) -> None:
    """In two threads, as torch's batched elimination fails with several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        generator = torch.Generator().manual_seed(0)
        scores, right = torch.randn(2, 4, 200, generator=generator, dtype=torch.float64)
        lengths = torch.tensor([200, 17, 9, 30])[:, None]
        mask = torch.arange(200) < lengths
        right = (right - right.masked_fill(~mask, 0).sum(dim=1, keepdim=True) / lengths).masked_fill(~mask, 0)
        right[3] = 0
        plan = soft_permutation(scores, mask, epsilon)
        solution = sinkhorn._newton(plan, mask, right)
    finally:
        torch.set_num_threads(threads)
    image = plan.sum(dim=1) * solution - (solution[:, None] @ plan.mT @ plan).squeeze(1)
    torch.testing.assert_close(image, right, rtol=1e-7, atol=1e-9)
    assert not solution[3].any()
