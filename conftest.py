"""The folder `examples/` of the doctests: a small collection, an encoder and a cross-encoder, made without network."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has `examples/`: the demo's collection and encoder, and a cross-encoder with random weights."""
    from transformers import BertForSequenceClassification

    from rerank.cli.demo import make_inputs
    from rerank.models.tiny_bert import make_vocabulary, random_bert, save_bert

    folder = tmp_path_factory.mktemp("doctests")
    make_inputs(folder / "examples")
    vocabulary = make_vocabulary(["oslo", "is", "the", "capital", "of", "norway", "cats", "sleep"])
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = random_bert(BertForSequenceClassification, vocabulary, 0, **sizes, num_labels=1)
    save_bert(model, vocabulary, folder / "examples" / "checkpoint")
    return folder


@pytest.fixture(autouse=True)
def in_the_folder_of_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a doctest that names `examples/` in the folder that has it."""
    if isinstance(request.node, pytest.DoctestItem) and "examples/" in (request.node.dtest.docstring or ""):
        monkeypatch.chdir(request.getfixturevalue("examples"))
