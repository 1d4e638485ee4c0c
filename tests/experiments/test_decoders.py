"""Decoders from the command line: training with and without LoRA, scoring, and other programs on the checkpoint."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank import Reranker
from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from tests.support.small_collection import SETTINGS, command, failed
from tests.support.small_world import WORDS
from tests.support.tiny_decoders import make_decoder

OWN = [*WORDS, *(f"{WORDS[number % len(WORDS)]}{number}" for number in range(15)), "good", "bad"]
TEMPLATE = "<|im_start|>user\\n<Query>: {query}\\n<Document>: {document}<|im_end|>\\n<|im_start|>assistant\\n"
"""As a shell gives it, with a backslash and an n."""
TEXT = TEMPLATE.replace("\\n", "\n")
CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"


@pytest.fixture
def there(here):
    make_decoder("qwen3", Path("decoder"), OWN, max_positions=100)
    Path("towns.toml").write_text(SETTINGS.replace('name = "encoder"', 'name = "decoder"'))


def train(*words):
    main(command("--fold", "1", "--epochs", "1", *words))


def score(out, *words):
    main(["score", CHECKPOINT, "runs/towns/bm25.run", "--out", out, *words])
    return read_run(Path(out))


@pytest.mark.parametrize("flags", [[], ["--encoder.lora-rank", "4"], ["--encoder.template", TEMPLATE]])
def test_a_decoder_is_trained_and_scores_as_in_its_test_run(flags, there):
    train(*flags)
    tested = read_run(Path("runs/towns/smoothi/fold1/test.run"))
    scored = score("again.run")
    for query_id, scores in tested.items():
        assert {doc_id: scored[query_id][doc_id] for doc_id in scores} == pytest.approx(scores, abs=1e-5)
    manifest = json.loads(Path("runs/towns/smoothi/fold1/manifest.json").read_text())
    assert manifest["passages"] == "packed"
    assert manifest.get("template") == (TEXT if "--encoder.template" in flags else None)


def test_a_resumed_lora_training_equals_the_uninterrupted_one(there, interrupted):
    flags = ["--fold", "1", "--epochs", "2", "--encoder.lora-rank", "4"]
    main(command(*flags, "--name", "whole"))
    assert interrupted(command(*flags, "--name", "parts")) == 130
    assert not Path("runs/towns/parts/fold1/test.run").exists()
    main(command(*flags, "--name", "parts"))
    folds = [Path(f"runs/towns/{name}/fold1") for name in ("whole", "parts")]
    for read in (
        lambda fold: read_run(fold / "test.run"),
        lambda fold: (fold / "checkpoint" / "model.safetensors").read_bytes(),
    ):
        assert read(folds[0]) == read(folds[1])


def test_a_checkpoint_remembers_its_template(there, capsys):
    train("--encoder.template", TEMPLATE)
    config = json.loads(Path(CHECKPOINT, "config.json").read_text())
    assert config["rerank"]["template"] == TEXT
    settings = tomllib.loads(Path("runs/towns/smoothi/config.toml").read_text())
    assert settings["encoder"]["template"] == TEXT
    score("own.run", "--encoder.template", TEMPLATE)
    line = failed(
        capsys, "score", CHECKPOINT, "runs/towns/bm25.run", "--out", "x.run", "--encoder.template", "{query} {document}"
    )
    assert "was trained with the template" in line
    assert line.endswith("leave --encoder.template out")


def test_a_model_of_others_is_scored_with_the_template_that_it_needs(there):
    """The scores of transformers for the whole text of each pair."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    query, documents = "amber0?", ["good birch.", "the bad cedar", "delta"]
    tokenizer = AutoTokenizer.from_pretrained("decoder")
    model = AutoModelForSequenceClassification.from_pretrained("decoder", dtype=torch.float32).eval()
    texts = [TEXT.replace("{query}", query).replace("{document}", document) for document in documents]
    with torch.no_grad():
        expected = [float(model(**tokenizer(text, return_tensors="pt")).logits) for text in texts]
    scores = Reranker.load("decoder", template=TEXT).score(query, documents)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert not np.allclose(Reranker.load("decoder").score(query, documents), expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("template", ["", TEXT, '<Query>: {query}\n"é" {document}'])
def test_sentence_transformers_gives_the_same_scores(template, kind, there):
    from sentence_transformers import CrossEncoder

    pairs = [("amber0?", "good birch."), ("amber0?", "the bad cedar"), ("delta", "delta")]
    name = make_decoder(kind, Path(kind), OWN, max_positions=200)
    model = open_cross_encoder(str(name), "mean", 0, template)
    model.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    save_cross_encoder(model, Path(CHECKPOINT))
    reranker = Reranker.load(CHECKPOINT)
    ours = [reranker.score(query, [document])[0] for query, document in pairs]
    theirs = CrossEncoder(CHECKPOINT, device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_a_chat_template_is_not_used_and_the_log_says_so(there, capsys):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("decoder")
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained("decoder")
    said = "the chat template of its tokenizer is not used; --encoder.template gives a prompt"
    train()
    assert said in capsys.readouterr().err
    assert not Path(CHECKPOINT, "chat_template.jinja").exists()
    train("--encoder.template", TEMPLATE, "--name", "prompt")
    assert said not in capsys.readouterr().err
    assert Path("runs/towns/prompt/fold1/checkpoint/chat_template.jinja").exists()


def test_wrong_templates_are_one_line(there, capsys):
    for template, expected in (
        ("<Query>: {query}", "expected {query} and {document} once each"),
        ("{document} {query}", "once each, in this order"),
    ):
        assert expected in failed(capsys, *command("--encoder.template", template))
        arguments = ("score", "decoder", "runs/towns/bm25.run", "--out", "x.run", "--collection", "towns")
        assert expected in failed(capsys, *arguments, "--encoder.template", template)
