from pathlib import Path

import cyclopts
import pytest

from rerank.config import sections, validate
from rerank.config.files import config_file
from rerank.experiments.grid import read_grid
from rerank.training.objective import open_loss
from rerank.utils.errors import UserError
from tests.support.paths import ROOT
from tests.support.small_grid import CELLS, GRID


def made(folder: Path, text: str, base="", flags=()):
    (folder / "grid.toml").write_text(text)
    (folder / "base.toml").write_text(base)
    return read_grid(folder / "grid.toml", flags, folder / "base.toml")[1]


def test_every_combination_of_each_table_is_a_cell_over_file_and_flags(tmp_path):
    found = made(tmp_path, GRID, "[training]\nepochs = 7\nlr = 1.0\n", ["--seed", "3"])
    assert sorted(cell.output.name for cell in found) == [f"{name}-seed=3" for name in CELLS]
    one, two, hinge = found
    assert (one.loss.name, one.loss.hyperparameters) == ("smoothi", {"metric": "ndcg@10"})
    assert two.loss.hyperparameters["metric"] == "p@1"
    assert (hinge.loss.name, hinge.loss.hyperparameters) == ("hinge", {})
    assert {(cell.training.epochs, cell.training.lr, cell.training.seed) for cell in found} == {(7, 1e-3, 3)}


def test_the_grid_names_its_configuration_relative_to_itself(tmp_path):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "grid.toml").write_text(GRID.replace('"towns', '"../towns') + "\n")
    (tmp_path / "towns.toml").write_text("[training]\nepochs = 7\n")
    fold, found = read_grid(tmp_path / "sweeps" / "grid.toml")
    assert {cell.training.epochs for cell in found} == {7}
    assert fold == "all"


def test_a_folder_of_the_name_is_no_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mq2008").mkdir()  # the collection
    assert config_file("mq2008").is_file()
    assert config_file("mq2009") == Path("mq2009")


def test_a_name_stays_the_same_when_the_grid_grows(tmp_path):
    (before,) = made(tmp_path, '[[grid]]\nloss.alpha = 1\ntraining.lr = 1e-2\nlists.relevant = "all"\n')
    after = made(tmp_path, '[[grid]]\nlists.relevant = ["all", 2]\ntraining.lr = [0.01, 1]\nloss.alpha = [1.0, 0.1]\n')
    assert before.output.name == "smoothi-lists.relevant=all-alpha=1-lr=0.01"
    assert before in after
    assert len({cell.output.name for cell in after}) == len(after) == 8


def test_a_name_has_the_hyperparameters_in_the_order_of_the_loss(tmp_path):
    table = '[[grid]]\nloss.strength = 1\nloss.beta = 2\nloss.metric = "ap"\nloss.name = "fastsort"\n'
    (cell,) = made(tmp_path, table)
    assert cell.output.name == "fastsort-metric=ap-beta=2-strength=1"
    assert list(sections(cell)["loss"]) == ["name", "metric", "beta", "cutoff_offset", "strength"]


def test_values_are_read_as_the_command_line_reads_them(tmp_path):
    found = made(tmp_path, '[[grid]]\nloss.stop_gradient = [true, false]\nlists.relevant = [3, "all"]\n')
    values = [(cell.loss.hyperparameters["stop_gradient"], cell.lists.relevant) for cell in found]
    assert values == [(True, 3), (True, "all"), (False, 3), (False, "all")]


def test_tables_that_overlap_give_a_cell_once_and_a_clash_is_refused(tmp_path):
    table = '[[grid]]\nloss.metric = ["ndcg@1", "ap"]\n'
    assert len(made(tmp_path, table + table)) == 2
    with pytest.raises(UserError, match="two different cells of the grid would be called smoothi-metric=ndcg_1"):
        made(tmp_path, '[[grid]]\nloss.metric = ["ndcg@1", "ndcg_1"]\n')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("folds = 3\n[[grid]]\nloss.alpha = 1\n", "grid.toml: folds: no such key; did you mean fold?"),
        ("fold = 1\n", "grid.toml: expected one or more [[grid]] tables of settings and their values, got none"),
        ("grid = [1, 2]\n", "settings and their values, got grid = [1, 2]"),
        ("[[grid]]\nloss.alfa = 1\n", "table 1: loss.alfa: no such setting; did you mean loss.alpha?"),
        ("[[grid]]\nalpha = 1\n", "table 1: alpha: no such setting; did you mean loss.alpha?"),
        ("[[grid]]\noutput.name = 'x'\n", "output.name: no such setting"),
        ("[[grid]]\nloss.alpha = []\n", "table 1: loss.alpha: got [], expected a value or an array"),
        ("[[grid]\n", "grid.toml: not TOML"),
    ],
)
def test_a_mistake_in_the_grid_is_named(tmp_path, text, expected):
    with pytest.raises(UserError) as raised:
        made(tmp_path, text)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("training.lr = 'x'", [], 'Invalid value for --training.lr: unable to convert "x" into float.'),
        ("loss.alpha = 1", ["--loss.alpha", "2"], "Parameter --loss.alpha specified multiple times."),
        ("loss.alpha = 1", ["--training.lrr", "2"], "Unknown option: --training.lrr. Did you mean --training.lr?"),
        ("loss.alpha = 1", ["--name", "mine"], "--name mine: a sweep names its cells itself"),
    ],
)
def test_a_wrong_value_or_flag_is_the_command_lines_error(tmp_path, text, flags, expected):
    with pytest.raises((cyclopts.CycloptsError, UserError)) as raised:
        made(tmp_path, f"[[grid]]\n{text}\n", flags=flags)
    assert expected in str(raised.value)


LETOR = 2 * (4 + 8 + 7 * 16 + 4 + 4 * 4 + 8 * 4)
"""Table 2: two learning rates x (ListNet, ListMLE, ListAP with two ranges; LambdaLoss's 8 variants; Approx's 7 with 16
hyperparameters and one with 4; 4 of each of four sorting operators; SmoothI's 8 with 4)."""

SWEEPS = {
    "alpha_delta": (1, 40),
    "demo_alpha": (1, 5),
    "letor": (10, LETOR),
    "letor_once": (10, 10),
    "list_length": (3, 7),
    "pooling": (1, 4),
    "runtime": (10, 22),  # the rows of Table 3
    "small_collection": (4, 8),
    "table4": (4, 54),
    "table4_more": (18, 144),
    "training": (1, 6),
}
"""Name of a grid -> its losses and its cells."""


def test_the_grids_have_the_papers_losses_and_nothing_that_is_refused():
    found = {}
    for path in (ROOT / "configs" / "sweeps").glob("*.toml"):
        _, cells = read_grid(path, ["--collection", "data"])
        for cell in cells:
            validate(cell)
            open_loss(cell.loss)
        found[path.stem] = len({cell.loss.name for cell in cells}), len(cells)
    assert found == SWEEPS
