"""The known data sets as they lie on disk: folds, widths, ids, labels, and what is wrong with them."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rerank.data.letor.layouts import fold_names, is_feature_source, open_fold
from rerank.data.types import Fold
from rerank.utils.errors import UserError
from tests.support.small_sets import LETOR, MSLR, OHSUMED, matrix, put, text, write_folds


def opened(source: Path, name: str = "1", folds: int = 5) -> SimpleNamespace:
    """A fold, and the training, validation and test queries of it."""
    fold, store = open_fold(str(source), name, folds, source.parent / "cache")
    parts = {part: store.features.subset(getattr(fold, part)) for part in ("train", "valid", "test")}
    return SimpleNamespace(fold=fold, **parts)


def refused(source: Path, name: str = "1", folds: int = 5) -> str:
    with pytest.raises(UserError) as error:
        opened(source, name, folds)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(f"{source}/", "")


@pytest.mark.parametrize(
    ("form", "width", "names", "parts"),
    [
        (LETOR, 46, "Fold{}", "test vali train"),
        (OHSUMED, 45, "fold{}", "test vali train"),
        (MSLR, 136, "Fold{}", "test.txt.gz vali.txt.gz train.txt.gz"),
        (OHSUMED, 45, "Fold{}", "testset.txt validationset.txt trainingset.txt"),  # LETOR 3.0
    ],
)
def test_five_folds(tmp_path, form, width, names, parts):
    source = tmp_path / "set"
    write_folds(source, form, width, names, parts)
    assert is_feature_source(str(source))
    assert fold_names(str(source), 7) == ["1", "2", "3", "4", "5"]
    fold = opened(source, "4")
    assert fold.fold == Fold("4", ("10", "11"), ("50", "51"), ("40", "41"))
    for j, part in enumerate((fold.test, fold.valid, fold.train)):
        assert part.query_ids == [("40", "41"), ("50", "51"), ("10", "11")][j]
        assert part.features.shape[1] == width
        assert part.features.dtype == np.float32
        assert not part.features.flags.writeable  # a file in memory
        rows = slice(part.starts[1], part.stops[1])
        np.testing.assert_array_equal(part.features[rows], matrix(3, width, seed=30 + 2 * j + 1))
        assert part.labels[rows].tolist() == [0, 1, 2]
    own = "41-{}" if form == MSLR else "41.{}"
    assert fold.test.doc_ids(1) == tuple(own.format(i) for i in range(3))


def test_yahoo(tmp_path):
    source = tmp_path / "yahoo"
    values = {part: matrix(4, 699, seed) for seed, part in enumerate(("train", "valid", "test"))}
    for query, (part, rows) in enumerate(values.items()):
        rows[:, 690:] = 0  # so that the sets differ in the largest index that they name
        rows[0, {"train": 698, "valid": 690, "test": 695}[part]] = 0.5
        put(source / f"set1.{part}.txt", text(MSLR, {str(query): rows}, sparse=True))
        put(source / f"set2.{part}.txt", "")
    assert is_feature_source(str(source))
    assert fold_names(str(source), 5) == ["1"]
    for _ in range(2):  # written, and then opened as it is
        fold = opened(source)
        for part, rows in values.items():
            found = getattr(fold, part)
            np.testing.assert_array_equal(found.features[found.starts[0] : found.stops[0]], rows)


def test_a_single_file_is_cut_into_folds(tmp_path):
    source = put(tmp_path / "all.txt", text(LETOR, {f"q{i}": matrix(1 + i % 3, 5, seed=i) for i in range(9)}))
    assert is_feature_source(str(source))
    assert fold_names(str(source), 3) == ["1", "2", "3"]
    folds = [opened(source, name, folds=3) for name in ("1", "2", "3")]
    assert sorted(query for fold in folds for query in fold.test.query_ids) == [f"q{i}" for i in range(9)]
    for fold in folds:
        assert len({*fold.train.query_ids, *fold.valid.query_ids, *fold.test.query_ids}) == 9
        for place, query in enumerate(fold.test.query_ids):
            i = int(query[1:])
            rows = slice(fold.test.starts[place], fold.test.stops[place])
            np.testing.assert_array_equal(fold.test.features[rows], matrix(1 + i % 3, 5, seed=i))
            assert fold.test.doc_ids(place) == tuple(f"{query}.{j}" for j in range(1 + i % 3))


def test_features_from_0_in_one_file_are_from_0_in_all(tmp_path):
    source = tmp_path / "set"
    put(source / "train.txt", "1 qid:1 0:5 2:6\n0 qid:1 1:7\n")
    put(source / "vali.txt", "1 qid:2 1:8\n")
    put(source / "test.txt", "1 qid:3 2:9\n")
    for _ in range(2):  # read, and then opened as it is
        fold = opened(source)
        assert fold.train.features.tolist() == [[5, 0, 6], [0, 7, 0], [0, 8, 0], [0, 0, 9]]
    put(source / "train.txt", "1 qid:1 1:5 2:6\n")
    assert opened(source).train.features.tolist() == [[5, 6], [8, 0], [0, 9]]


LINE = "1 qid:{} 1:0.5 2:0.25 #docid = {}\n"
FIRST = LINE.format(1, "a")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ":1: expected a document, as in `label qid:QUERY"),
        ("\n# nothing\n", ":3: expected a document, as in `label qid:QUERY"),
        ("1 qid:1\n0 qid:2\n", ":3: expected a document with a feature, got the end"),
        (
            FIRST + "1 qid:1 2:1 1:1\n",
            ":2: expected index:value with indices from 0 to 9,999 that rise .*, got '1 qid:1 2:1 1:1'",
        ),
        (FIRST + "1 1:1\n", ":2: expected qid:QUERY after the label, as in .*, got '1 1:1'"),
        (
            "".join(LINE.format(query, "a") for query in ("1", "2", "1")),
            ":3: expected all lines of query 1 together, from line 1 on; got one after query 2",
        ),
        (FIRST + FIRST, ".*: expected a document once in a query, got a of query 1 again"),
        (LINE.format(1, "1-1") + "1 qid:1 1:1\n", ".*: expected a document once in a query, got 1-1 of query 1 again"),
    ],
)
@pytest.mark.parametrize("block", [2**22, 16])
def test_mistakes_are_named_with_file_and_line(tmp_path, monkeypatch, block, lines, expected):
    monkeypatch.setattr("rerank.data.letor.store.BLOCK", block)
    monkeypatch.setattr("rerank.utils.parallel.FEW", 99)
    write_folds(tmp_path / "set")
    put(tmp_path / "set" / "Fold1" / "train.txt", lines)
    assert re.match("Fold1/train.txt" + expected, refused(tmp_path / "set"))
    assert not list((tmp_path / "cache").glob(".*"))  # nothing half there


def test_files_that_are_not_as_expected(tmp_path):
    source = tmp_path / "set"
    assert not is_feature_source(str(source))
    with pytest.raises(UserError, match=r"set: no feature files; expected a file, or a folder with train\.txt"):
        fold_names(str(source), 5)
    write_folds(source)
    (source / "Fold1" / "vali.txt").unlink()
    assert "Fold1: expected vali.txt or set1.valid.txt or validationset.txt, .gz or not, got none" in refused(source)
    put(source / "Fold3" / "vali.txt", (source / "Fold3" / "test.txt").read_text())
    assert "Fold3/vali.txt and Fold3/test.txt: expected no query in both, got query 30" in refused(source, "3")
    put(source / "Fold4" / "test.txt.gz", "1 qid:1 1:1").write_bytes(b"\x1f\x8b\x08")
    assert opened(source, "4").fold.test == ("40", "41")  # of test.txt
    (source / "Fold4" / "test.txt").unlink()
    assert "Fold4/test.txt.gz: damaged gzip file" in refused(source, "4")
    (source / "Fold4" / "test.txt").symlink_to("../Fold5/train.txt")
    assert opened(source, "4").fold.test == ("20", "21")
    (source / "Fold5").rename(tmp_path / "outside")
    (source / "Fold5").symlink_to(tmp_path / "outside")
    for name in ("4", "5"):
        assert re.match(f"Fold{name}/.* out of {source}; expected a file in the folder", refused(source, name))


@pytest.mark.parametrize(
    ("name", "content", "features"),
    [
        ("docs.jsonl", '{"_id": "1", "text": "at 10:30"}\n', False),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\n1\td1\t1\n", False),
        ("bm25.run", "301 Q0 d1 1 12.5 bm25\n", False),
        ("times.tsv", "d1\t10:30 in the morning\n", False),
        ("log.txt", "2026 10:30 started\n", False),
        ("topics/train.txt.bak", "301 what is 10:30\n", False),
        ("mq.txt", "2 qid:1 1:0.5 #docid = GX-1\n", True),
        ("mq.txt.gz", "# comment\n\n1.0\tqid:1\t1:0.5\n", True),
        ("no-query.txt", "1 1:0.5\n", False),
        ("bom.txt", "\ufeff1 qid:1 1:0.5\n", True),
    ],
)
def test_a_file_is_a_feature_source_if_its_lines_look_like_it(tmp_path, name, content, features):
    assert is_feature_source(str(put(tmp_path / name, content))) == features
    assert not is_feature_source(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"x qid:1 1:1\n0 qid:1 1:1\n", b"\x1f\x8b\x08"])
def test_an_empty_or_damaged_file_is_left_to_its_reader(tmp_path, content):
    file = tmp_path / ("cut.txt.gz" if content.startswith(b"\x1f") else "a.txt")
    file.write_bytes(content)
    assert is_feature_source(str(file))
    assert not is_feature_source(str(tmp_path))
