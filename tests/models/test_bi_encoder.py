"""Bi-encoders: vectors are those of a loop over single texts, whatever the folder says of pooling and prompts."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.models import packed_texts
from rerank.models.bi_encoder import BiEncoder
from rerank.models.hub import bi_encoder_hash
from rerank.models.packed_attention import IMPLEMENTATION
from rerank.utils.errors import UserError
from tests.models.tiny import BF16_CASES, write_modules
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

TEXTS = list(make_texts({"short": 3, "one": 15, "two": 30, "many": 200, "empty": 0}).values())
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_encoder("bert", tmp_path_factory.mktemp("plain"), WORDS, max_positions=24)


@pytest.fixture
def configured(tmp_path):
    def write(**settings):
        return str(write_modules(make_encoder("bert", tmp_path / "encoder", WORDS, max_positions=24), **settings))

    return write


def vectors_one_by_one(folder, texts, pooling="mean", prompt=""):
    """Transformers alone, without padding, batches or sentence-transformers."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for text in texts:
        inputs = tokenizer(prompt + text, truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state[0]
        found.append(hidden[0] if pooling == "cls" else hidden.mean(0))
    return torch.stack(found).numpy()


def test_a_plain_encoder_gives_the_mean_of_its_tokens_and_says_so(plain, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("rerank"), "propagate", True)
    with caplog.at_level("INFO", logger="rerank"):
        encoder = BiEncoder.load(str(plain), device="cpu")
    assert "has no modules.json; mean pooling and the cosine are used" in caplog.text
    vectors, passages = encoder.encode_documents(TEXTS)
    flat = [passage for text in TEXTS for passage in encoder.split(text)]
    assert passages.tolist() == [len(encoder.split(text)) for text in TEXTS]
    np.testing.assert_allclose(vectors, vectors_one_by_one(plain, flat), **CLOSE)
    queries = encoder.encode_queries(["amber birch", "cedar"])
    np.testing.assert_allclose(queries, vectors_one_by_one(plain, ["amber birch", "cedar"]), **CLOSE)
    assert encoder.compares == "cosine"


@pytest.mark.parametrize(("asked", "limits", "precision"), BF16_CASES)
@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "mpnet"])  # the last one is padded
def test_bf16_is_used_where_it_is_asked_for_and_where_it_gains(kind, tmp_path, monkeypatch, asked, limits, precision):
    monkeypatch.setattr("rerank.models.gpu.bf16_gain", lambda: 4.0)
    for name, value in limits.items():
        monkeypatch.setattr(packed_texts, name, value)
    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=24)
    exact = BiEncoder.load(folder, device="cpu", precision="float32").encode_documents(TEXTS)[0]
    encoder = BiEncoder.load(folder, device="cpu", precision=asked)
    found, _ = encoder.encode_documents(TEXTS)
    difference = np.abs(found - exact).max() / np.abs(exact).max()
    assert (difference > 0) == (precision == "bf16")
    assert difference < 0.03
    assert (encoder.model[0].auto_model.config._attn_implementation == IMPLEMENTATION) == (kind != "mpnet")
    alone = np.concatenate([encoder.encode_documents([text])[0] for text in TEXTS])
    np.testing.assert_allclose(alone, found, atol=0.03 * np.abs(exact).max())


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-r", "modernbert", "mpnet"])
def test_vectors_are_those_of_encode_and_padding_is_not_computed(kind, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = str(make_encoder(kind, tmp_path / kind, WORDS, max_positions=40))
    encoder, plain = BiEncoder.load(folder, device="cpu"), SentenceTransformer(folder, device="cpu")
    passages, seen = [passage for text in TEXTS for passage in encoder.split(text)], []
    encoder.model[0].auto_model.get_input_embeddings().register_forward_hook(lambda *given: seen.append(given[2].shape))
    vectors, _ = encoder.encode_documents(TEXTS)
    np.testing.assert_allclose(vectors, plain.encode_document(passages, batch_size=3), **CLOSE)
    tokens = [len(encoder.model.tokenizer(passage)["input_ids"]) for passage in passages]
    longest = max(tokens) * len(tokens)
    assert sum(shape[0] * shape[1] for shape in seen) == (longest if kind == "mpnet" else sum(tokens))
    single = encoder.encode_queries([passages[0]])
    np.testing.assert_allclose(single, plain.encode_query([passages[0]]), **CLOSE)


def test_the_folder_decides_pooling_prompts_and_similarity(configured):
    prompts = {"query": "delta ", "document": "ember fjord "}
    folder = configured(pooling="cls", similarity="dot", prompts=prompts)
    encoder = BiEncoder.load(folder, device="cpu")
    vectors, _ = encoder.encode_documents(["amber birch"])
    np.testing.assert_allclose(vectors, vectors_one_by_one(folder, ["amber birch"], "cls", "ember fjord "), **CLOSE)
    query = encoder.encode_queries(["cedar"])
    np.testing.assert_allclose(query, vectors_one_by_one(folder, ["cedar"], "cls", "delta "), **CLOSE)
    assert encoder.compares == "dot"
    assert encoder.max_tokens == 24 - 2 - 2


def test_normalised_vectors_have_length_one(configured):
    vectors, _ = BiEncoder.load(configured(normalise=True), device="cpu").encode_documents(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, **CLOSE)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-r", "modernbert"])
def test_passages_are_the_whole_text_and_of_about_equal_length(kind, tmp_path):
    folder = make_encoder(kind, tmp_path / "encoder", WORDS, max_positions=40)
    encoder = BiEncoder.load(str(folder), device="cpu")
    tokenizer = encoder.model.tokenizer
    for text in TEXTS:
        passages = encoder.split(text)
        assert "".join(passages) == text
        lengths = [len(tokenizer(passage)["input_ids"]) for passage in passages]
        assert max(lengths) <= 40
        assert max(lengths) - min(lengths) <= 6
        assert all(passage.split()[0] in WORDS for passage in passages if passage)  # no word is cut
    assert encoder.split("short") == ["short"]


def test_the_hash_is_of_all_files_that_a_vector_depends_on(configured):
    folder = configured()
    before = bi_encoder_hash(folder)
    assert bi_encoder_hash(folder) == before
    Path(folder, "README.md").write_text("other")
    assert bi_encoder_hash(folder) == before
    pooling = Path(folder, "1_Pooling/config.json")
    pooling.write_text(pooling.read_text() + " ")
    assert bi_encoder_hash(folder) != before


def test_what_is_no_bi_encoder_is_one_line(tmp_path, configured):
    folder = make_cross_encoder("bert", tmp_path / "cross", WORDS)
    with pytest.raises(UserError, match="is a BertForSequenceClassification, which compares no vectors; expected a bi"):
        BiEncoder.load(str(folder), device="cpu")
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    with pytest.raises(UserError, match=r"^encoder .*: is a CrossEncoder; expected a bi-encoder"):
        BiEncoder.load(str(folder), device="cpu")
    with pytest.raises(UserError, match="no such folder; check the path"):
        BiEncoder.load(str(tmp_path / "nowhere"), device="cpu")
    damaged = tmp_path / "encoder" / "modules.json"
    configured()
    damaged.write_text("[{")
    with pytest.raises(UserError, match=r"modules\.json: not JSON .*; download or save the model again"):
        BiEncoder.load(str(damaged.parent), device="cpu")


def test_a_longest_text_that_leaves_no_token_for_a_document_is_refused(configured):
    folder = configured(prompts={"document": "ember " * 22, "query": ""})
    with pytest.raises(UserError, match="24 tokens, of which special tokens and the document prompt take 24: none"):
        BiEncoder.load(folder, device="cpu")
    Path(folder, "sentence_bert_config.json").write_text('{"max_seq_length": 20.5}')
    with pytest.raises(UserError, match=r"expected a whole number of tokens as its longest text, got 20\.5"):
        BiEncoder.load(folder, device="cpu")


def test_what_is_no_list_of_texts_is_refused_and_none_has_no_vector(tmp_path):
    make_encoder("bert", tmp_path / "encoder", WORDS)
    encoder = BiEncoder.load(str(tmp_path / "encoder"), device="cpu")
    with pytest.raises(TypeError, match=r"^queries: expected a sequence of texts, got one text$"):
        encoder.encode_queries("alpha")
    with pytest.raises(TypeError, match=r"^documents: expected a sequence of texts, got one text$"):
        encoder.encode_documents("alpha")
    with pytest.raises(TypeError, match=r"^documents\[1\]: expected a text, got int$"):
        encoder.encode_documents(["amber", 2])
    with pytest.raises(UserError, match=r"^queries\[0\]: is not Unicode text"):
        encoder.encode_queries(["\ud800"])
    vectors = encoder.encode_queries(["amber"])
    assert encoder.encode_queries([]).shape == (0, vectors.shape[1])
    assert np.array_equal(encoder.encode_queries(iter(["amber"])), vectors)
    none, passages = encoder.encode_documents([])
    assert (none.shape, passages.tolist()) == ((0, vectors.shape[1]), [])
