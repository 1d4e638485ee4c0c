"""The generated collection has the properties that it promises, and the encoder is an ordinary Hugging Face folder."""

import hashlib
import re
from collections import Counter

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from rerank.data import demo
from rerank.data.collections import open_collection
from rerank.data.demo import EVIDENCE_AFTER, SUBJECTS, make_collection
from rerank.models.tiny_bert import make_encoder

TOWNS = 60
WORDS = {subject: set(" ".join(words).split()) for subject, words in SUBJECTS.items()}
TELLING = set().union(*WORDS.values())


def words_of(text):
    return re.findall(r"[a-z]+", text.lower())


def digest(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


class World:
    """The collection, what its files hold, and the encoder that is made of its texts."""

    def __init__(self, folder):
        self.collection, self.encoder = folder / "collection", folder / "encoder"
        make_collection(self.collection)
        read = open_collection(str(self.collection))
        self.texts = {document.doc_id: document.text for document in read.documents()}
        self.queries, self.qrels = read.queries, read.qrels
        make_encoder(self.encoder, [*self.texts.values(), *self.queries.values()])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "TOWNS", TOWNS)
        yield World(tmp_path_factory.mktemp("demo"))


def test_the_same_seed_writes_the_same_bytes(tmp_path, world):
    make_collection(tmp_path / "again")
    make_collection(tmp_path / "other", seed=1)
    assert digest(tmp_path / "again") == digest(world.collection) != digest(tmp_path / "other")


def test_every_query_and_document_is_whole_and_judged(world):
    assert list(world.queries) == [f"q{number}" for number in range(1, TOWNS + 1)]
    assert len(world.texts) == len(set(world.texts.values())) == 20 * TOWNS
    assert world.qrels.keys() == world.queries.keys()
    assert [doc_id for judged in world.qrels.values() for doc_id in judged] == list(world.texts)
    assert all(Counter(judged.values()) == {2: 2, 1: 3, 0: 15} for judged in world.qrels.values())


def test_bm25_sees_the_town_and_never_the_subject_whose_words_tell_the_relevance(world):
    towns = {query.split()[0] for query in world.queries.values()}
    assert len({town[:5] for town in towns}) == TOWNS
    for query_id, query in world.queries.items():
        town, subject = query.split()
        for doc_id, relevance in world.qrels[query_id].items():
            words = set(words_of(world.texts[doc_id]))
            assert town in words
            assert not words & set(SUBJECTS)
            told = {one for one, telling in WORDS.items() if words & telling}
            assert (subject in told) == (relevance > 0)
            assert len(told) == 1 or relevance < 2


def test_one_document_in_ten_tells_only_after_the_512th_token(world):
    tokenizer = AutoTokenizer.from_pretrained(world.encoder, model_max_length=10_000)
    tokens = {doc_id: tokenizer.tokenize(text) for doc_id, text in world.texts.items()}
    long_ones = {doc_id for doc_id, pieces in tokens.items() if len(pieces) > 512}
    assert all(650 < len(tokens[doc_id]) <= 790 for doc_id in long_ones)
    assert all(len(pieces) < 200 for doc_id, pieces in tokens.items() if doc_id not in long_ones)
    assert not any(TELLING & set(tokens[doc_id][:EVIDENCE_AFTER]) for doc_id in long_ones)
    for judged in world.qrels.values():
        relevant = {doc_id for doc_id, relevance in judged.items() if relevance > 0}
        assert (len(long_ones & judged.keys()), len(long_ones & relevant)) == (2, 1)
        assert all(TELLING & set(tokens[doc_id]) for doc_id in relevant)


def test_the_encoder_loads_and_knows_every_word_and_its_company(world):
    tokenizer, model = AutoTokenizer.from_pretrained(world.encoder), AutoModel.from_pretrained(world.encoder)
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 512
    assert len(tokenizer) == model.config.vocab_size
    assert not any("[UNK]" in tokenizer.tokenize(text) for text in [*world.texts.values(), *world.queries.values()])
    assert tokenizer.tokenize("velqz") == ["v", "##e", "##l", "##q", "##z"]
    encoded = tokenizer("zormarvik climate", "humid fogs", return_tensors="pt")
    assert encoded["token_type_ids"].tolist()[0][-3:] == [1, 1, 1]
    with torch.inference_mode():
        assert model(**encoded).last_hidden_state.isfinite().all()
    vectors = torch.nn.functional.normalize(model.embeddings.word_embeddings.weight, dim=-1)
    fogs, storms, soups = vectors[tokenizer.convert_tokens_to_ids(["fogs", "storms", "soups"])]
    assert fogs @ storms > 0.5 > fogs @ soups


def test_the_encoder_is_a_function_of_texts_and_seed(tmp_path):
    texts = ["frosty fogs and rainy storms", "spicy soups and salted stews", "velquingor climate"]
    state = torch.get_rng_state()
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        make_encoder(tmp_path / name, texts, seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert digest(tmp_path / "one") != digest(tmp_path / "three")
