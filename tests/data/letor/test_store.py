"""The store: files are read once, again when one changed, and never half. FeatureSet: a part of it."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from rerank.data.letor import store
from rerank.data.letor.store import FeatureSet, open_feature_store
from rerank.utils.errors import UserError
from tests.support.small_sets import LETOR, MSLR, matrix, put, text


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    return put(tmp_path / "data" / "train.txt", text(LETOR, {"1": matrix(3, 4), "2": matrix(2, 4, seed=1)}))


def opened(path, cache):
    return open_feature_store({"all": path}, cache).features


def test_a_file_is_read_once_and_again_when_it_was_touched(source, cache, monkeypatch):
    first = opened(source, cache)
    with monkeypatch.context() as patch:
        patch.setattr(store, "parse", None)  # no line is read
        again = opened(source, cache)
    np.testing.assert_array_equal(first.features, again.features)
    assert again.doc_ids(1) == ("2.0", "2.1")
    os.utime(source, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns + 10**9))
    np.testing.assert_array_equal(opened(source, cache).features, first.features)
    assert len(list(cache.glob("*/"))) == 2


def test_rows_become_wider_on_the_way(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("rerank.data.letor.store.BLOCK", 32)
    monkeypatch.setattr("rerank.utils.parallel.FEW", 99)
    rows = [{}, {2: 5}, {1: 1, 2: 2}, {1: 3}, {7: 1}, {1: 1, 2: 1}, {0: 6, 9: 4}]
    lines = [f"0 qid:{i // 4} {' '.join(f'{j}:{value}' for j, value in row.items())}\n" for i, row in enumerate(rows)]
    expected = np.array([[row.get(i, 0) for i in range(10)] for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(opened(put(tmp_path / "a.txt", "".join(lines)), cache).features, expected)
    files = {"train": put(tmp_path / "b.txt", "".join(lines[:4])), "test": put(tmp_path / "c.txt", "".join(lines[4:]))}
    both = open_feature_store(files, cache)
    np.testing.assert_array_equal(both.features.features, expected)
    assert both.query_ids == {"train": ("0",), "test": ("1",)}


def test_blocks_do_not_show(tmp_path, cache, monkeypatch):
    """Whatever the blocks, gzipped or not, by processes or not: the same store."""
    named, unnamed = text(LETOR, {"1": matrix(3, 4)}), text(MSLR, {"2": matrix(5, 4, seed=2)})
    content = f"\ufeff{named}\r\n# c\n{unnamed.rstrip()}"
    features = opened(put(tmp_path / "whole.txt", content), cache)
    (whole,) = cache.glob("*/")
    monkeypatch.setattr("rerank.data.letor.store.BLOCK", 40)
    for name, few in [("here.txt", 999), ("others.txt.gz", 3)]:
        monkeypatch.setattr("rerank.utils.parallel.FEW", few)
        opened(put(tmp_path / name, content), cache)
        (cut,) = (folder for folder in cache.glob("*/") if f'"{name}"' in (folder / "facts.json").read_text())
        assert {file.name for file in whole.iterdir()} == {file.name for file in cut.iterdir()}
        for file in whole.glob("*.bin"):
            assert (cut / file.name).read_bytes() == file.read_bytes()
    assert features.doc_ids(0) == ("1.0", "1.1", "1.2")
    assert features.doc_ids(1) == ("2-0", "2-1", "2-2", "2-3", "2-4")


def test_a_line_without_end(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("rerank.data.letor.store.LONGEST_LINE", 50)
    with pytest.raises(UserError, match=r"a.txt:2: expected .*, got a line of more than 50 bytes"):
        opened(put(tmp_path / "a.txt", "1 qid:1 1:1\n" + "x" * 60), cache)


@pytest.mark.parametrize("name", ["features.bin", "facts.json"])
def test_any_damage_to_a_store_is_noticed_and_removing_it_is_the_remedy(source, cache, name):
    expected = opened(source, cache).features.copy()
    (folder,) = cache.glob("*/")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
    with pytest.raises(UserError, match=rf"{folder}.*{name}.*; remove the folder and run again") as caught:
        opened(source, cache)
    assert "\n" not in str(caught.value)
    shutil.rmtree(folder)
    np.testing.assert_array_equal(opened(source, cache).features, expected)


def test_a_part_shares_memory_and_keeps_the_order_asked_for():
    values, labels = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5, dtype=np.int32)
    whole = FeatureSet(values, labels, np.array([0, 2, 3]), np.array([2, 3, 5]), ("a", "b", "c"), np.array([b""] * 5))
    part = whole.subset(["c", "a"])
    assert part.features is whole.features
    assert part.qrels() == {"c": {"c-0": 3, "c-1": 4}, "a": {"a-0": 0, "a-1": 1}}
    named = replace(whole, ids=np.array([text.encode() for text in ("x", "y", "é", "", "z")]))
    assert named.subset(["b", "c"]).qrels() == {"b": {"é": 2}, "c": {"c-0": 3, "z": 4}}
