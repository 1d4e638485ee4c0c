"""Plug-ins: found by an entry point and by --plugin, for every registry, in workers too; a broken one is one line."""

import json
import os
import sys
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.config import Config, EncoderSettings
from rerank.data.collections import READERS, open_source
from rerank.evaluation.compare import compare
from rerank.evaluation.significance import TESTS
from rerank.experiments.checks import check_training
from rerank.losses import LABELS, LOSSES
from rerank.models.pooling import POOLINGS
from rerank.pipelines.stages.base import STAGES, stage_kinds
from rerank.training.tracking import TRACKERS, check_tracker
from rerank.utils import plugins
from tests.support.small_collection import exit_code, failed
from tests.support.small_features import SETTINGS, write_folds_of_features

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from rerank.data.collections import register
from rerank.evaluation.significance import significance_test
from rerank.losses import loss
from rerank.losses.pairwise import hinge
from rerank.models.pooling import maximum, pooling
from rerank.pipelines.stages.base import stage
from rerank.training import tracker

__version__ = "3"

@loss("mine")
def mine(scores, labels, mask=None, size: float = 1.0):
    """Mine."""
    return hinge(scores, labels, mask, margin=size)

pooling("mine")(maximum)
significance_test("mine", label="my test")(lambda differences: 0.25)
tracker("mine")(lambda run, folder: None)

@stage
@dataclass(frozen=True)
class Mine:
    of: str
    kind: ClassVar[str] = "mine"

@register
class Reader:
    queries, name = {"q": "drag"}, "mine"
    def __init__(self, source): self.source = source
    @classmethod
    def matches(cls, source): return source == "mine"
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the module; what it registers is removed afterwards."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(plugins, "_begun", set())
    yield tmp_path
    monkeypatch.undo()  # the installed package is found no longer
    plugins._installed.cache_clear()
    sys.modules.pop("mine", None)
    for registry in (LOSSES, LABELS, POOLINGS, TESTS, TRACKERS, STAGES):
        registry.pop("mine", None)
    READERS.pop("mine.Reader", None)


def install(folder: Path, module: str) -> None:
    """What pip writes for a package with this entry point."""
    about = folder / "my_package-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[rerank]\nanything = {module}\n")
    plugins._installed.cache_clear()
    sys.path.append(str(folder))


@pytest.fixture
def installed(here):
    install(here, "mine")
    yield
    sys.path.remove(str(here))
    plugins._installed.cache_clear()


def run_of(*scores):
    return {f"q{number}": {"d": score, "e": 0.5} for number, score in enumerate(scores)}


def test_every_registry_has_what_an_installed_package_registers(installed):
    check_training(Config(loss="mine", encoder=EncoderSettings(pooling="mine")))
    check_tracker("mine")
    assert stage_kinds()["mine"].__name__ == "Mine"
    assert open_source("mine").queries == {"q": "drag"}
    qrels = {f"q{number}": {"d": 1} for number in range(3)}
    assert "my test" in str(compare({"a": run_of(1, 1, 1), "b": run_of(0, 0, 1)}, qrels, ["AP"], test="mine"))
    assert plugins.plugin_versions() == {"my-package": "1.2"}


def test_a_named_module_has_flags_and_trains_in_workers_which_resume(here, capsys):
    write_folds_of_features(here / "letor")
    Path("grid.toml").write_text("[[grid]]\nloss.size = [0.5, 2]\n")
    Path("letor.toml").write_text(SETTINGS)
    for _ in range(2):
        words = ["--config=letor.toml", "--plugin=mine", "--loss", "mine", "--fold", "1"]
        assert exit_code("sweep", "grid.toml", *words) == 0
    assert "2 folds, 2 of them finished already" in capsys.readouterr().err
    manifest = json.loads(Path("runs/letor/mine-size=2/fold1/manifest.json").read_text())
    assert (manifest["config"]["loss"]["size"], manifest["versions"]["mine"]) == (2.0, "3")
    main(["train", "--plugin", "mine", "--help", "all"])
    assert "--loss.size" in capsys.readouterr().out
    assert os.environ[plugins.VARIABLE] == "mine"


def test_an_import_that_is_interrupted_is_named_and_begun_again(here, capsys):
    Path("slow.py").write_text("raise KeyboardInterrupt")  # as Ctrl-C in an import that hangs
    for _ in range(2):
        assert exit_code("doctor", "--plugin", "slow") == 130
        line = capsys.readouterr().err.splitlines()[-1]
        assert line == "rerank: interrupted; --plugin slow: its import had not ended"


def test_a_broken_plugin_is_named_in_one_line(here, capsys):
    Path("broken.py").write_text("import nowhere\n")
    line = failed(capsys, "fuse", "a.run", "--plugin", "broken", "--out", "b.run")
    assert line == "rerank: --plugin broken: cannot be imported: ModuleNotFoundError: No module named 'nowhere'"
    os.environ[plugins.VARIABLE] = ""
    for code, error in (("import sys; sys.exit(0)", "SystemExit: 0"), ("raise GeneratorExit('x')", "GeneratorExit: x")):
        Path("ending.py").write_text(code)
        line = failed(capsys, "doctor", "--plugin", "ending")
        assert line == f"rerank: --plugin ending: cannot be imported: {error}"
        os.environ[plugins.VARIABLE] = ""
    assert "no module named 'absent'" in failed(capsys, "--plugin", "absent", "doctor").lower()
    os.environ[plugins.VARIABLE] = ""
    assert "expected the name of a module, such as my_losses, got nothing" in failed(capsys, "doctor", "--plugin")
    assert "got ./mine.py" in failed(capsys, "doctor", "--plugin", "./mine.py")
    install(here, "broken")
    try:
        line = failed(capsys, "train", "--loss", "hinge")
    finally:
        plugins._installed.cache_clear()
    assert line.startswith("rerank: plug-in broken of the package my-package: cannot be imported: ModuleNotFound")
