"""The store: a file is read once, again when it changed, and never half."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rerank.data.letor import store
from rerank.data.letor.store import build_store, open_store
from rerank.utils.errors import UserError
from tests.support.small_sets import LETOR, MSLR, matrix, put, text


@pytest.fixture
def source(tmp_path):
    return put(tmp_path / "data" / "train.txt", text(LETOR, {"1": matrix(3, 4), "2": matrix(2, 4, seed=1)}))


@pytest.fixture
def reads(monkeypatch):
    """The files that were read into a store."""
    paths: list[Path] = []

    def write(folder, path, *rest):
        paths.append(path)
        return original(folder, path, *rest)

    original = store.write
    monkeypatch.setattr(store, "write", write)
    return paths


def touch(path: Path) -> None:
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))


def test_a_file_is_read_once(source, reads, tmp_path):
    first = open_store(build_store(source, tmp_path / "cache"), 4)
    again = open_store(build_store(source, tmp_path / "cache"), 4)
    assert reads == [source]
    np.testing.assert_array_equal(first.features, again.features)
    assert again.doc_ids(1) == ("2.0", "2.1")


def test_a_touched_file_is_hashed_not_read(source, reads, tmp_path, capsys):
    build_store(source, tmp_path / "cache")
    touch(source)
    kept = build_store(source, tmp_path / "cache")
    assert reads == [source]
    assert "comparing its checksum" in capsys.readouterr().err
    assert kept.facts == build_store(source, tmp_path / "cache").facts
    assert "comparing" not in capsys.readouterr().err  # its new time is kept


@pytest.mark.parametrize("which", ["train.txt", "train.txt.query"])
def test_a_changed_file_is_read_again(tmp_path, reads, which):
    source = put(tmp_path / "train.txt", "1 1:5\n0 1:6\n1 1:7\n")
    side = put(tmp_path / "train.txt.query", "1\n2\n")
    assert open_store(build_store(source, tmp_path / "cache"), 1).stops.tolist() == [1, 3]
    put(tmp_path / which, {source: "1 1:5\n0 1:6\n1 1:8\n", side: "2\n1\n"}[tmp_path / which])
    touch(tmp_path / which)
    changed = open_store(build_store(source, tmp_path / "cache"), 1)
    assert reads == [source, source]
    assert (changed.features[2, 0], changed.stops[0]) == {source: (8, 1), side: (7, 2)}[tmp_path / which]
    side.unlink()
    with pytest.raises(UserError, match=r"train.txt:1: expected qid:QUERY"):
        build_store(source, tmp_path / "cache")


def test_a_mistake_keeps_what_was_there(source, tmp_path):
    before = build_store(source, tmp_path / "cache")
    good = source.read_text()
    put(source, good + "x\n")
    with pytest.raises(UserError, match=r"train.txt:6: expected a whole number"):
        build_store(source, tmp_path / "cache")
    put(source, good)
    assert build_store(source, tmp_path / "cache").facts["checksums"] == before.facts["checksums"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [before.folder.name]


def test_rows_become_wider_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr("rerank.data.letor.blocks.BLOCK", 32)
    monkeypatch.setattr("rerank.utils.processes.FEW", 99)
    rows = [{}, {2: 5}, {1: 1, 2: 2}, {1: 3}, {7: 1}, {1: 1, 2: 1}, {9: 4}]
    lines = [f"0 qid:1 {' '.join(f'{i}:{value}' for i, value in row.items())}\n" for row in rows]
    kept = build_store(put(tmp_path / "a.txt", "".join(lines)), tmp_path / "cache")
    assert kept.facts["width"] == 9
    expected = np.array([[row.get(i, 0) for i in range(1, 12)] for row in rows], dtype=np.float32)
    for width in (9, 11, 9):
        features = open_store(build_store(tmp_path / "a.txt", tmp_path / "cache"), width)
        np.testing.assert_array_equal(features.features, expected[:, :width])
    assert len(list(kept.folder.glob("features*"))) == 1
    with (kept.folder / "features-11.bin").open("r+b") as file:
        file.write(b"\1")
    with pytest.raises(UserError, match=r"features-11\.bin: expected XXH3"):
        open_store(build_store(tmp_path / "a.txt", tmp_path / "cache"), 9)


def test_blocks_do_not_show(tmp_path, monkeypatch):
    """Whatever the blocks, gzipped or not, by processes or not: the same store."""
    named, unnamed = text(LETOR, {"1": matrix(3, 4)}), text(MSLR, {"2": matrix(5, 4, seed=2)})
    content = f"\ufeff{named}\r\n# c\n{unnamed.rstrip()}"
    whole = build_store(put(tmp_path / "whole.txt", content), tmp_path / "cache")
    monkeypatch.setattr("rerank.data.letor.blocks.BLOCK", 40)
    for name, few in [("here.txt", 999), ("others.txt.gz", 3)]:
        monkeypatch.setattr("rerank.utils.processes.FEW", few)
        cut = build_store(put(tmp_path / name, content), tmp_path / "cache")
        files = sorted(path.name for path in whole.folder.iterdir())
        assert sorted(path.name for path in cut.folder.iterdir()) == files
        for file in set(files) - {"facts.json"}:
            assert (cut.folder / file).read_bytes() == (whole.folder / file).read_bytes()
    features = open_store(whole, 4)
    assert features.doc_ids(0) == ("1.0", "1.1", "1.2")
    assert features.doc_ids(1) == ("2-0", "2-1", "2-2", "2-3", "2-4")


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("rerank.data.letor.blocks.LONGEST_LINE", 50)
    with pytest.raises(UserError, match=r"a.txt:2: expected .*, got a line of more than 50 bytes"):
        build_store(put(tmp_path / "a.txt", "1 qid:1 1:1\n" + "x" * 60), tmp_path / "cache")


DAMAGES = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut at a value": lambda file: file.write_bytes(file.read_bytes()[:-4]),
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-2] + bytes([file.read_bytes()[-2] ^ 1])),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["features.bin", "labels.bin", "offsets.npy", "queries.txt", "doc_ids.txt"])
def test_any_damage_to_a_store_is_noticed_and_removing_it_is_the_remedy(source, tmp_path, name, damage):
    kept = build_store(source, tmp_path / "cache")
    expected = open_store(kept, 4).features.copy()
    DAMAGES[damage](kept.folder / name)
    with pytest.raises(UserError, match=rf"{kept.folder}: .*{name}: expected .*; remove the folder and run again"):
        open_store(build_store(source, tmp_path / "cache"), 4)
    shutil.rmtree(kept.folder)
    np.testing.assert_array_equal(open_store(build_store(source, tmp_path / "cache"), 4).features, expected)


def test_changed_facts_are_noticed(source, tmp_path):
    kept = build_store(source, tmp_path / "cache")
    file = kept.folder / "facts.json"
    facts = json.loads(file.read_text())
    for changed in ({**facts, "width": 3}, {**facts, "hash": "0"}, {**facts, "checksums": {}}):
        file.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=r"facts\.json: changed since it was written; remove .* and run again"):
            build_store(source, tmp_path / "cache")
    file.write_text(json.dumps({name: fact for name, fact in facts.items() if name != "hash"}))
    with pytest.raises(UserError, match="changed since it was written"):
        build_store(source, tmp_path / "cache")
    file.write_text("{")
    with pytest.raises(UserError, match=r"facts\.json: not JSON \(.*\); remove .* and run again"):
        build_store(source, tmp_path / "cache")


def test_a_store_of_an_older_version_has_matching_sizes(source, tmp_path):
    kept = build_store(source, tmp_path / "cache")
    facts = {name: fact for name, fact in kept.facts.items() if name not in ("files", "hash")}
    (kept.folder / "facts.json").write_text(json.dumps(facts))
    assert open_store(build_store(source, tmp_path / "cache"), 6).features.shape == (5, 6)
    assert open_store(build_store(source, tmp_path / "cache"), 4).features.shape == (5, 4)
    (kept.folder / "labels.bin").write_bytes(b"\0" * 4)
    with pytest.raises(UserError, match=r"cannot be read .*; remove the folder and run again"):
        open_store(build_store(source, tmp_path / "cache"), 4)


def test_facts_are_those_of_the_file(source, tmp_path):
    kept = build_store(source, tmp_path / "cache")
    facts = json.loads((kept.folder / "facts.json").read_text())
    assert (facts["rows"], facts["width"]) == (5, 4)
    assert len(facts["checksums"]["train.txt"]) == 64
