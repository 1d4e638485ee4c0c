"""What all tests share."""

import gc
import itertools
import os
import shutil
import signal

import pytest
import torch

from rerank.cli.main import main
from rerank.training import loop
from rerank.utils.progress import log_to_terminal
from tests.support import small_features
from tests.support.small_collection import SETTINGS, command, in_a_copy, write_collection, write_encoder
from tests.support.watch import pytest_exception_interact, pytest_handlecrashitem, pytest_testnodedown  # noqa: F401

# Models this small are faster on one thread, and a second one makes them wait for each other on a busy machine.
torch.set_num_threads(1)

# A build of torch without CUDA cannot use the card of this machine, which is an error.
if torch.version.cuda is None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

log_to_terminal()

# A shell's background jobs ignore the first and nohup's the second, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# What a developer or a company may have set for all programs; Java reports the first three on standard error.
for name in (
    *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "RAY_ADDRESS", "PYTHONWARNINGS"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"),
    *("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"),
):
    os.environ.pop(name, None)


SLOWEST_FIRST = (
    *("tests/cli/test_on_ray.py", "tests/experiments/test_sweep.py"),
    *("tests/packaging/test_global_state.py", "tests/pipelines/test_fit.py", "tests/scripts/test_benchmarks.py"),
    *("tests/scripts/test_gpu_check.py", "tests/experiments/test_feature_task.py"),
)
"""Files that no process should start when the others are about to end."""


def pytest_addoption(parser):
    parser.addoption("--reversed", action="store_true", help="run the files in the opposite order, the slowest last")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not item.nodeid.startswith(SLOWEST_FIRST))
    if config.getoption("--reversed"):
        files = [list(tests) for _, tests in itertools.groupby(items, lambda item: item.path)]
        items[:] = [item for tests in reversed(files) for item in tests]


def pytest_collection_finish():
    """Keeps the tests out of garbage collections, which took a third of a second each; every fold ends with one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with a collection, an encoder and the BM25 run in runs/ that every test may start from."""
    folder = tmp_path_factory.mktemp("home")
    write_collection(folder / "towns")
    write_encoder(folder / "encoder")
    (folder / "towns.toml").write_text(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["retrieve", "--collection", "towns"])
    return folder


@pytest.fixture(scope="session")
def trained(home, tmp_path_factory):
    """A copy of `home` with a trained fold, runs/towns/smoothi/fold1."""
    with in_a_copy(home, tmp_path_factory) as folder:
        main(command("--fold", "1"))
    return folder


@pytest.fixture
def here(home, tmp_path, monkeypatch):
    """A copy of the module's `home` to work in."""
    shutil.copytree(home, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def there(trained, tmp_path, monkeypatch):
    """A copy of `trained` to work in."""
    shutil.copytree(trained, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def letor(tmp_path, monkeypatch):
    """A folder to work in with a set of feature vectors, letor/, and the settings for it, letor.toml."""
    small_features.write_folds_of_features(tmp_path / "letor")
    (tmp_path / "letor.toml").write_text(small_features.SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def interrupted(monkeypatch):
    """Runs a command that is interrupted once the state of an epoch is saved, and gives its exit code."""

    def run(words):
        save = loop.save_state

        def interrupt(*arguments):
            save(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(loop, "save_state", interrupt)
            with pytest.raises(SystemExit) as ended:
                main(words)
        return ended.value.code

    return run
