"""The section "Use your model" of the guide to checkpoints: every line runs, and the libraries agree."""

import ast
import re
import shlex

import numpy as np
import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from tests.support.paths import ROOT
from tests.support.small_collection import write_collection
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

GUIDE = ROOT / "docs" / "guides" / "sharing.md"
SECTION = re.search(r"\n## Use your model\n(.*?)\n## ", GUIDE.read_text("utf-8"), re.DOTALL)[1]
QUICK = ["--epochs", "1", "--training.lists-per-epoch", "8"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder where the commands ran in order, with the collection and the encoder they name, by command."""
    folder = tmp_path_factory.mktemp("readme")
    write_collection(folder / "my-collection")
    make_encoder("bert", folder / "microsoft" / "MiniLM-L12-H384-uncased", [*WORDS, "good", "bad"])
    (folder / "topics.tsv").write_text("new1\tamber0 good\nnew2\tbirch1\n")
    commands = [shlex.split(line.strip()) for line in SECTION.splitlines() if line.startswith("    rerank ")]
    output = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _, name, *words in commands:
            main([name, *words, *(QUICK if name == "train" else [])])
            output[name] = folder
        yield output


@pytest.fixture(scope="module")
def values(folders):
    """The value of each expression of the Python blocks, in order."""
    namespace, found = {}, []
    for block in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL):
        for statement in ast.parse(block).body:
            if isinstance(statement, ast.Expr):
                found.append(eval(compile(ast.Expression(statement.value), "sharing.md", "eval"), namespace))
            else:
                exec(compile(ast.Module([statement], []), "sharing.md", "exec"), namespace)
    return found


def test_the_commands_train_and_submit(folders):
    assert list(folders) == ["train", "score"]
    submitted = read_run(folders["score"] / "submission.run")
    assert submitted.keys() == {"new1", "new2"}
    assert all(len(scores) >= 5 for scores in submitted.values())


def test_three_libraries_give_the_same_scores(values):
    ours, sentence_transformers, transformers, _ = values
    assert ours.shape == (2,)
    assert abs(ours[0] - ours[1]) > 1e-4
    np.testing.assert_allclose(sentence_transformers, ours, atol=1e-5)
    np.testing.assert_allclose(transformers.detach().numpy(), ours, atol=1e-5)


def test_pyterrier_measures_the_pipeline(values):
    table = values[-1]
    assert list(table["name"]) == ["bm25", "ours"]
    assert table[["ndcg_cut_10", "map"]].gt(0).all(axis=None)
