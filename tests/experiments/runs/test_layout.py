"""rerank/experiments/runs/layout.py alone knows the names of files in runs/."""

import re

from rerank.experiments.runs.layout import CollectionFolder, ExperimentFolder
from tests.support.paths import ROOT

FILES = (
    r"(?:test|valid|all|bm25)\.run|manifest\.json|log\.jsonl|config\.toml|qrels\.txt|folds\.json"
    r"|lists\.jsonl|features\.json"
)
NAMED = re.compile(rf"""["'](?:[^"'\s]*[/{{}}*])?(?:{FILES})["']|["']fold\*|/ ?["'](?:checkpoint|state)["']""")
"""A text in quotes that is the name of a file, alone or at the end of a path; names of folders, joined to a path."""


def test_no_other_module_names_a_file_in_runs():
    files = [*(ROOT / "rerank").rglob("*.py"), *(ROOT / "scripts" / "paper").rglob("*.py")]
    files.remove(ROOT / "rerank" / "experiments" / "runs" / "layout.py")
    lines = [(path, number, line) for path in files for number, line in enumerate(path.read_text().splitlines(), 1)]
    named = [(path, number, line) for path, number, line in lines if NAMED.search(line)]
    assert not [found for found in named if not found[2].lstrip().startswith((">>>", "..."))]


def test_folds_are_ordered_by_number_and_know_whether_they_are_finished(tmp_path):
    experiment = CollectionFolder(tmp_path).experiment("smoothi")
    for name in ("10", "2", "1"):
        experiment.fold(name).path.mkdir(parents=True)
    experiment.fold("2").state.mkdir()
    experiment.fold("10").test_run.touch()
    assert [fold.name for fold in experiment.folds] == ["1", "2", "10"]
    assert [fold.begun for fold in experiment.folds] == [False, True, True]
    assert [fold.finished for fold in experiment.folds] == [False, False, True]
    assert experiment.has_results
    assert CollectionFolder(tmp_path).has_results
    assert not CollectionFolder(tmp_path).experiments  # no settings
    experiment.settings.touch()
    assert CollectionFolder(tmp_path).experiments == [experiment]
    assert experiment.folds[0].experiment == ExperimentFolder(tmp_path / "smoothi")


def test_first_stages_with_other_settings_have_other_names(tmp_path):
    folder = CollectionFolder(tmp_path)
    assert folder.bm25_run() == tmp_path / "bm25.run"
    found = folder.bm25_run({"index": "a b/index", "k1": 1.2})
    assert found == tmp_path / "bm25-index=a_b_index-k1=1.2.run"
