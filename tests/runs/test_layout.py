"""rerank/runs/layout.py alone knows the names of files in runs/."""

import ast
import re

import pytest

from rerank.config import CollectionSettings, FirstStageSettings
from rerank.runs.layout import CollectionFolder, ExperimentFolder
from tests.support.paths import ROOT

FILE_NAME = re.compile(
    r"(^|[/{}*])(test\.run|valid\.run|all\.run|bm25\.run|manifest\.json|log\.jsonl|config\.toml|qrels\.txt|folds\.json"
    r"|test\.passages\.json|lists\.jsonl|features\.json)$|^fold\*"
)
FOLDER_NAMES = ("checkpoint", "state")
"""Words with other meanings: names of folders only where they are joined to a path."""


def names_of_files(tree):
    """(line, text) of string constants that name a file; sentences, which contain spaces, may mention one."""
    exempt = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    exempt |= {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if any(isinstance(text, ast.Constant) and " " in text.value for text in node.values)
    }
    for node in ast.walk(tree):
        joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant)
        if joined and node.right.value in FOLDER_NAMES:
            yield node.lineno, node.right.value
        text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exempt
        if text and " " not in node.value and FILE_NAME.search(node.value):
            yield node.lineno, node.value


def test_no_other_module_names_a_file_in_runs():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in sorted([*(ROOT / "rerank").rglob("*.py"), *(ROOT / "scripts" / "paper").rglob("*.py")])
        if path != ROOT / "rerank" / "runs" / "layout.py"
        for line, text in names_of_files(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("folder / 'test.run'", 1),
        ("folder / f'fold{i}/test.run'", 1),
        ("folder.glob('*/fold*/test.run')", 1),
        ("folder.glob('fold*')", 1),
        ("folder / 'state'", 1),
        ("optimizer.state_dict()['state']", 0),
        ("print(f'{name}: expected qrels.txt, got nothing')", 0),
        ("def f():\n    'test.run'", 0),
    ],
)
def test_the_check_itself(code, names):
    assert len(list(names_of_files(ast.parse(code)))) == names


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
    assert folder.first_stage(FirstStageSettings()) == tmp_path / "bm25.run"
    german = CollectionSettings(language="de", query_field="title")
    assert folder.first_stage(FirstStageSettings(), german) == tmp_path / "bm25-query-field=title-language=de.run"
    new = CollectionSettings(queries="a b/new topics.v2.tsv.gz")
    assert folder.first_stage(FirstStageSettings(), new, "0123abcd").name == "bm25-queries=new_topics-0123abcd.run"
    assert folder.first_stage(FirstStageSettings(k1=1.2)) == tmp_path / "bm25-k1=1.2.run"
    assert str(folder.first_stage(FirstStageSettings(run="other.run"))) == "other.run"
