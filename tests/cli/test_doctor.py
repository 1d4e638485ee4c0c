"""`rerank doctor`: what is ready."""

import shutil
from pathlib import Path

from tests.support.fake_cards import insert_card
from tests.support.small_collection import exit_code
from tests.support.small_features import write_folds_of_features


def test_the_doctor_says_what_is_ready_and_what_is_not(here, capsys):
    assert exit_code("doctor", "--config", "towns.toml") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ready"] * 6
    assert "15 queries, 15 of them judged" in lines[2]
    Path("new.tsv").write_text("n1\tgood\n")
    shutil.rmtree("towns/qrels")
    for words, expected in {(): "15 queries, 0 of them", ("--queries", "new.tsv"): "1 queries, 0 of them"}.items():
        assert exit_code("doctor", "--config", "towns.toml", *words) == 0
        assert expected in capsys.readouterr().out
    assert exit_code("doctor", "--collection", "towns", "--encoder", "nowhere") == 1
    missing = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("missing")]
    assert missing == ["encoder"]


def test_without_a_collection_it_checks_the_installation(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert exit_code("doctor", "--device", "cpu") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ready", part] for part in ("Java", "packages", "device")]
    assert "torch 2." in lines[1]


def test_feature_vectors_need_no_java_and_an_encoder_is_checked_if_it_is_given(tmp_path, capsys):
    words = ["doctor", "--collection", str(write_folds_of_features(tmp_path / "vectors")), "--device", "cpu"]
    assert exit_code(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ready", part] for part in ("packages", "collection", "device")]
    assert "folds: 1, 2, 3, 4, 5" in lines[1]
    assert exit_code(*words, "--encoder", "./nowhere") == 2
    assert "--encoder ./nowhere: no such file or folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert exit_code(*words, "--encoder", str(tmp_path / "empty")) == 1
    assert "missing  encoder" in capsys.readouterr().out


def test_the_doctor_says_what_torch_cannot_run_on(here, capsys, monkeypatch):
    def device_line(*words):
        code = exit_code("doctor", "--config", "towns.toml", *words)
        return code, next(line for line in capsys.readouterr().out.splitlines() if line.split()[1] == "device")

    insert_card(monkeypatch, "Tesla T4", (7, 5))
    assert device_line() == (0, "ready    device       1 × Tesla T4, compute capability 7.5, fp16, SDPA")
    insert_card(monkeypatch, "Tesla K80", (3, 7))
    code, line = device_line()
    assert code == 1
    assert line.startswith("missing  device")
    assert "it has compute capability 3.7, and this PyTorch" in line
    code, line = device_line("--device", "cpu")
    assert (code, "CPU, " in line) == (0, True)
