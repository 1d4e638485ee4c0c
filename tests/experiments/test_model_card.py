"""The model card: front matter for the hub, and what the manifest says, in words."""

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from rerank import Reranker
from rerank.cli.main import main
from tests.support.small_collection import command
from tests.support.small_world import WORDS
from tests.support.tiny_decoders import make_decoder

CHECKPOINT = Path("runs/towns/smoothi/fold1/checkpoint")


def card_of(folder):
    return ModelCard.load(folder / "README.md")


def test_a_trained_model_has_a_card_with_the_values_of_its_manifest(here):
    main(command("--fold", "1", "--loss", "smoothi", "--encoder.pooling", "max"))
    card = card_of(CHECKPOINT)
    assert card.data.to_dict() == {
        "library_name": "sentence-transformers",
        "pipeline_tag": "text-ranking",
        "license": "unknown",
        "tags": ["cross-encoder", "reranker", "rerank"],
    }
    manifest = json.loads((CHECKPOINT.parent / "manifest.json").read_text())
    for measure in ("nDCG@20", "AP"):
        valid, test = (manifest["outcome"][part]["means"][measure] for part in ("valid", "test"))
        assert f"| {measure} | {valid:.4f} | {test:.4f} |" in card.text
    assert f"Trained on {len(manifest['fold']['train'])} queries of the collection `towns`" in card.text
    assert "The checkpoint is a `BertForSequenceClassification` with one output" in card.text
    assert "together at most 24 tokens" in card.text
    assert "pools their scores (max)" in card.text
    same = "the same score if query and document fit into 24 tokens, nothing of the query is cut, and\nthe document has"
    assert f"{same} at most 800." in card.text
    assert 'name = "smoothi"' in card.text
    assert re.search(r"was the best on (1 validation query|\d+ validation queries)\.", card.text)


def test_a_card_says_which_documents_other_libraries_score_alike(here):
    """A document of more than one passage is none of them, although it would fit beside the query."""
    main(command("--fold", "1", "--encoder.passage-tokens", "8", "--encoder.pooling", "max"))
    text = card_of(CHECKPOINT).text
    assert "rerank cuts a query at half of that, or at what a passage leaves of it. It cuts a document into" in text
    assert "nothing of the query is cut, and\nthe document has at most 8." in text


TEMPLATE = '"{query}" <é>\n{document}'


@pytest.mark.parametrize(("encoder", "template"), [("encoder", ""), ("encoder", TEMPLATE), ("decoder", TEMPLATE)])
def test_the_python_code_of_a_card_runs(encoder, template, here):
    """It gives the scores of `Reranker`, also with a template."""
    make_decoder("qwen3", Path("decoder"), WORDS)
    main(command("--fold", "1", "--encoder", encoder, "--encoder.template", template))
    blocks = card_of(CHECKPOINT).text.split("```python\n")[1:]
    assert len(blocks) == 3
    names = {"query": "amber0", "documents": ["amber0 good", "river bad"]}
    scores = [Reranker.load(CHECKPOINT).score(**names).tolist()]
    for block in blocks:
        code = block.partition("```")[0].replace("path/or/name", str(CHECKPOINT))
        exec(code, names)
        if "scores" in names:
            scores.append(names["scores"].tolist())
    assert len(scores) == 3
    assert scores[1:] == [pytest.approx(scores[0], abs=1e-5)] * 2


def test_licence_and_base_model_are_those_of_the_encoders_card(here):
    front = "---\nlicense: other\nlicense_name: ours\nlicense_link: LICENSE\nbase_model: someone/tiny\n---\n"
    Path("encoder/README.md").write_text(front)
    main(command("--fold", "1"))
    data = card_of(CHECKPOINT).data
    assert (data.license, data.license_name, data.base_model) == ("other", "ours", "someone/tiny")


def test_a_card_of_the_encoder_that_cannot_be_read_gives_no_licence(here):
    Path("encoder/README.md").write_text("---\nlicense: [\n---\n")
    main(command("--fold", "1"))
    assert card_of(CHECKPOINT).data.license == "unknown"
