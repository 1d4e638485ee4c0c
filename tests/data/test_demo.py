"""The generated collection has the properties that it promises, and the encoder is an ordinary Hugging Face folder."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from rerank.data import demo
from rerank.data.demo import EVIDENCE_AFTER, SUBJECTS, make_collection
from rerank.models.tiny_bert import make_encoder

TOWNS = 60


def _rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _digest(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


@pytest.fixture(scope="module", autouse=True)
def fewer_towns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "TOWNS", TOWNS)
        yield


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "collection"
    make_collection(folder)
    return folder


@pytest.fixture(scope="module")
def texts(collection: Path) -> dict[str, str]:
    return {row["_id"]: f"{row['title']} {row['text']}" for row in _rows(collection / "corpus.jsonl")}


@pytest.fixture(scope="module")
def queries(collection: Path) -> dict[str, str]:
    return {row["_id"]: row["text"] for row in _rows(collection / "queries.jsonl")}


@pytest.fixture(scope="module")
def qrels(collection: Path) -> dict[str, dict[str, int]]:
    header, *lines = (collection / "qrels" / "test.tsv").read_text().splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in lines:
        query_id, doc_id, relevance = line.split("\t")
        judged[query_id][doc_id] = int(relevance)
    return judged


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str], queries: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    make_encoder(folder, [*texts.values(), *queries.values()])
    return folder


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, collection: Path) -> None:
    make_collection(tmp_path / "again")
    make_collection(tmp_path / "other", seed=1)
    assert _digest(tmp_path / "again") == _digest(collection)
    assert _digest(tmp_path / "other") != _digest(collection)


def test_every_query_and_document_is_whole_and_judged(
    texts: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]]
) -> None:
    assert len(queries) == TOWNS
    assert len(texts) == len(set(texts.values())) == 20 * TOWNS
    assert set(qrels) == set(queries)
    assert [doc_id for judged in qrels.values() for doc_id in judged] == list(texts)
    assert all(Counter(judged.values()) == {2: 2, 1: 3, 0: 15} for judged in qrels.values())


def test_bm25_sees_the_town_and_never_the_subject(
    texts: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]]
) -> None:
    towns = {query.split()[0] for query in queries.values()}
    assert len({town[:5] for town in towns}) == len(queries)
    for query_id, query in queries.items():
        town, subject = query.split()
        assert subject in SUBJECTS
        assert all(town in _words(texts[doc_id]) for doc_id in qrels[query_id])
    assert not {word for text in texts.values() for word in _words(text)} & set(SUBJECTS)


def test_the_vocabulary_of_the_subject_tells_the_relevance(
    texts: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]]
) -> None:
    for query_id, query in queries.items():
        for doc_id, relevance in qrels[query_id].items():
            words = set(_words(texts[doc_id]))
            told = {subject for subject, (adjectives, nouns) in SUBJECTS.items() if words & {*adjectives, *nouns}}
            assert (query.split()[1] in told) == (relevance > 0)
            assert len(told) == 1 or relevance < 2


def test_one_document_in_ten_tells_only_after_the_512th_token(
    encoder: Path, texts: dict[str, str], qrels: dict[str, dict[str, int]]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder, model_max_length=10_000)
    telling = {word for adjectives, nouns in SUBJECTS.values() for word in (*adjectives, *nouns)}
    tokens = {doc_id: tokenizer.tokenize(text) for doc_id, text in texts.items()}
    lengths = {doc_id: len(pieces) for doc_id, pieces in tokens.items()}
    long_ones = {doc_id for doc_id, length in lengths.items() if length > 512}
    assert all(650 < lengths[doc_id] <= 790 for doc_id in long_ones)
    assert all(length < 200 for doc_id, length in lengths.items() if doc_id not in long_ones)
    assert not any(telling & set(tokens[doc_id][:EVIDENCE_AFTER]) for doc_id in long_ones)
    for judged in qrels.values():
        relevant = [doc_id for doc_id, relevance in judged.items() if relevance > 0]
        assert len(long_ones & set(judged)) == 2
        assert len(long_ones & set(relevant)) == 1
        assert all(telling & set(tokens[doc_id]) for doc_id in relevant)


def test_the_encoder_loads_and_knows_every_word(encoder: Path, texts: dict[str, str], queries: dict[str, str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder)
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 512
    assert len(tokenizer) == model.config.vocab_size
    for text in [*texts.values(), *queries.values()]:
        assert tokenizer.tokenize(text)[: len(_words(text))].count("[UNK]") == 0
    assert tokenizer.tokenize("velqz") == ["v", "##e", "##l", "##q", "##z"]
    encoded = tokenizer("zormarvik climate", "humid fogs", return_tensors="pt")
    assert encoded["token_type_ids"].tolist()[0][-3:] == [1, 1, 1]
    with torch.inference_mode():
        assert model(**encoded).last_hidden_state.isfinite().all()


def test_the_encoder_is_a_function_of_texts_and_seed(tmp_path: Path) -> None:
    texts = ["frosty fogs and rainy storms", "spicy soups and salted stews", "velquingor climate"]
    state = torch.get_rng_state()
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        make_encoder(tmp_path / name, texts, seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert _digest(tmp_path / "one") == _digest(tmp_path / "two")
    assert _digest(tmp_path / "one") != _digest(tmp_path / "three")


def test_word_vectors_know_the_company_of_a_word(encoder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    vectors = torch.nn.functional.normalize(
        AutoModel.from_pretrained(encoder).embeddings.word_embeddings.weight, dim=-1
    )
    fogs, storms, soups = vectors[tokenizer.convert_tokens_to_ids(["fogs", "storms", "soups"])]
    assert fogs @ storms > 0.5 > fogs @ soups
