"""What two folders have in common, and random damage."""

import json
import random

from scripts.campaign.contents import contents, differences
from scripts.campaign.mutations import HOSTILE, damaged


def test_times_locks_and_the_index_do_not_count(tmp_path):
    for name, seconds in (("first", 1.5), ("second", 2.5)):
        folder = tmp_path / name
        (folder / "index").mkdir(parents=True)
        (folder / "index" / f"segments_{seconds}").touch()
        (folder / f"{name}.lock").touch()
        (folder / "log.jsonl").write_text(json.dumps({"loss": 1, "seconds": seconds}) + "\n")
        (folder / "manifest.json").write_text(json.dumps({"facts": [{"seconds": seconds}], "epochs": 2}))
        (folder / "test.run").write_text("q1 Q0 d1 1 1.0 tag\n")
    first, second = contents(tmp_path / "first"), contents(tmp_path / "second")
    assert sorted(first) == ["log.jsonl", "manifest.json", "test.run"]
    assert differences(first, second, set()) == []


def test_every_other_difference_counts(tmp_path):
    (tmp_path / "manifest.json").write_text('{"epochs": 2}')
    (tmp_path / "gone").touch()
    before = contents(tmp_path)
    (tmp_path / "manifest.json").write_text('{"epochs": 3}')
    (tmp_path / "gone").unlink()
    (tmp_path / "new").touch()
    found = differences(before, contents(tmp_path), set())
    assert found == ["gone is missing", "manifest.json differs", "new is not expected"]
    assert differences(before, contents(tmp_path), {"gone", "new"}) == ["manifest.json differs"]


def test_damage_follows_from_the_seed_and_is_of_every_way():
    good = b"first line\nsecond line\n"
    results = [damaged(good, random.Random(seed)) for seed in range(300)]
    assert results == [damaged(good, random.Random(seed)) for seed in range(300)]
    assert sum(content == good for content, _ in results) < 15
    assert {content for content, _ in results} & set(HOSTILE)
    words = " ".join(what for _, what in results)
    for way in ("empty", "cut", "flipped", "random bytes", "inserted", "twice", "removed", "swapped", "replaced"):
        assert way in words
