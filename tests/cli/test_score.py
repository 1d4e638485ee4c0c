"""`rerank score`: a checkpoint re-ranks any run."""

import json
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.utils.files import file_hash
from tests.support.small_collection import command, failed


def test_a_checkpoint_re_ranks_a_run(here, capsys):
    main(command("--fold", "1", "--encoder.pooling", "max", "--encoder.max-doc-tokens", "20"))
    main(
        [
            "score",
            "runs/towns/smoothi/fold1/checkpoint",
            "runs/towns/bm25.run",
            "--out",
            "again.run",
            "--collection",
            "towns",
        ]
    )
    again, before = read_run("again.run"), read_run("runs/towns/smoothi/fold1/test.run")
    assert len(again) == 15
    for query_id, documents in before.items():
        assert again[query_id] == pytest.approx(documents, abs=1e-5)
    facts = json.loads(Path("again.run.json").read_text())
    assert facts["first_stage"] == {"run": "runs/towns/bm25.run", "sha256": file_hash(Path("runs/towns/bm25.run"))}
    assert facts["run"]["sha256"] == file_hash(Path("again.run"))
    assert facts["documents"].keys() == {"fingerprint", "tokens"}
    assert "train it first" in failed(
        capsys, "score", "encoder", "runs/towns/bm25.run", "--out", "no.run", "--collection", "towns"
    )
    assert not Path("no.run").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["./nowhere", "runs/towns/bm25.run", "--out", "no.run"], "checkpoint ./nowhere: no such file or folder"),
        (["encoder", "nowhere.run", "--out", "no.run"], "run nowhere.run: no such file"),
        (["encoder", "runs/towns", "--out", "no.run"], "run runs/towns: is a folder, expected a file"),
        (["encoder", "runs/towns/bm25.run", "--out", "towns"], "--out towns: is a folder"),
    ],
)
def test_missing_inputs_are_refused_before_a_model_is_loaded(here, capsys, words, expected):
    assert expected in failed(capsys, "score", *words, "--collection", "towns")


def test_it_takes_the_flags_that_act_on_it_and_ignores_the_other_settings_of_a_file(here, capsys):
    line = failed(capsys, "score", "c", "r.run", "--out", "o.run", "--training.lr", "1")
    assert line == "rerank: --training.lr: has no effect on `rerank score`, which does not take it"
    main(command("--fold", "1"))
    words = ["score", "runs/towns/smoothi/fold1/checkpoint", "runs/towns/bm25.run", "--out", "again.run"]
    main([*words, "--config", "towns.toml", "--depth", "3", "--device", "cpu"])
    assert {len(documents) for documents in read_run("again.run").values()} == {3}
