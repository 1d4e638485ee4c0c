"""A choice that does not depend on what a tiny bi-encoder adds."""

import pytest


@pytest.fixture(scope="module")
def the_last_stage_answers():
    """The tiny bi-encoder adds nothing, so that the choice (test_choice) would leave BM25 alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerank.pipelines.selection.choose", lambda values, costly: list(values)[-1])
        yield
