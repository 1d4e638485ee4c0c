"""`rerank score` part by part: what is kept and checked, and that the joined run is that of one process."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.experiments import score as rescore
from rerank.experiments.score import cut, default_parts
from rerank.utils.files import file_hash
from tests.support.processes import in_two_processes
from tests.support.small_collection import in_a_copy

CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"
RUN = "runs/towns/bm25.run"


@pytest.fixture(scope="module")
def trained(trained, tmp_path_factory):
    """A trained fold, and the run that one process writes in four parts."""
    with in_a_copy(trained, tmp_path_factory) as folder:
        score("--parts", "4")
        Path("out.run").rename("whole.run")
        Path("out.run.json").unlink()
    return folder


def score(*words, out="out.run"):
    main(["score", CHECKPOINT, RUN, "--out", out, *words])


def whole():
    """The run of one process, under the name of `out.run`."""
    return Path("whole.run").read_bytes()


def folders():
    """The folders of parts."""
    return list(Path().glob("out.run.parts-*"))


def test_parts_have_about_equal_tokens_and_none_is_empty():
    tokens = np.array([3, 9, 1, 1, 1, 30, 2, 2, 5, 4])
    for parts in range(1, len(tokens) + 1):
        bounds = cut(tokens, parts)
        assert bounds[0] == 0
        assert bounds[-1] == len(tokens)
        assert len(bounds) == parts + 1
        assert (np.diff(bounds) > 0).all()
    even = cut(np.full(1000, 7), 10)
    assert np.diff(even).tolist() == [100] * 10


@pytest.mark.parametrize(
    ("queries", "tokens", "parts"), [(10, 100, 1), (10, 2**18, 10), (1000, 2**13, 31), (10_000, 2**14, 100)]
)
def test_the_number_of_parts_follows_from_the_tokens(queries, tokens, parts):
    assert default_parts(np.full(queries, tokens)) == parts


def begin(patch, *words, parts):
    """Interrupts a command after so many parts."""
    scored, score_candidates = [], rescore.score_candidates

    def interrupt(*given, **settings):
        if len(scored) == parts:
            raise KeyboardInterrupt
        scored.append(given)
        return score_candidates(*given, **settings)

    with patch.context() as patch:
        patch.setattr(rescore, "score_candidates", interrupt)
        with pytest.raises(SystemExit) as ended:
            score(*words)
    assert ended.value.code == 130


def test_a_command_that_is_interrupted_goes_on_after_its_last_part(there, monkeypatch, capsys):
    begin(monkeypatch, "--parts", "4", parts=2)
    (parts,) = folders()
    assert sorted(path.name for path in parts.glob("*.run")) == ["00001.run", "00002.run"]
    assert not Path("out.run").exists()
    begin(monkeypatch, "--parts", "4", parts=1)
    assert f"{parts}: 2 of 4 parts are there already" in capsys.readouterr().err
    score("--parts", "4")
    assert f"{parts}: 3 of 4 parts are there already" in capsys.readouterr().err
    assert Path("out.run").read_bytes() == whole()
    assert not folders()
    facts = json.loads(Path("out.run.json").read_text())
    assert facts["parts"] == 4
    assert facts["run"] == {"sha256": file_hash(Path("out.run"))}
    assert facts["first_stage"] == {"run": RUN, "sha256": file_hash(Path(RUN))}


def test_parts_of_another_model_or_other_settings_are_not_joined(there, monkeypatch):
    begin(monkeypatch, "--parts", "4", parts=1)
    (first,) = folders()
    for others in (["5"], ["4", "--depth", "3"], ["4", "--training.precision", "float32"]):
        begin(monkeypatch, "--parts", *others, parts=1)
    weights = Path(CHECKPOINT, "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\1\0")
    begin(monkeypatch, "--parts", "4", parts=1)
    assert [len(list(folder.glob("*.run"))) for folder in folders()] == [1] * 5
    score("--parts", "4")
    assert Path("out.run").read_bytes() != whole()
    assert first in folders()
    assert len(folders()) == 4


def test_gzip_has_the_same_bytes(there):
    score("--parts", "4", out="out.run.gz")
    assert gzip.decompress(Path("out.run.gz").read_bytes()) == whole()
    score("--parts", "4", out="out.gz")
    assert Path("out.gz").read_bytes() == Path("out.run.gz").read_bytes()  # without a name or a time inside


def test_other_parts_change_a_score_by_rounding_alone(there):
    score("--parts", "15")
    found = read_run("out.run")
    for query_id, scores in read_run("whole.run").items():
        assert found[query_id] == pytest.approx(scores, abs=1e-5)


def test_two_processes_write_the_run_of_one(there, tmp_path):
    assert in_two_processes(tmp_path, score, "--parts", "4") == [None, None]
    assert Path("out.run").read_bytes() == whole()
    assert not folders()
