"""`rerank push`: what is uploaded, and mistakes in one line. A stand-in takes the place of huggingface.co."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from rerank.cli.main import main
from tests.support.small_collection import failed
from tests.support.tiny_encoders import make_encoder

CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"
FILES = ["README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def there(trained, monkeypatch):
    monkeypatch.chdir(trained)


@pytest.fixture
def hub(monkeypatch):
    """Records the calls, and the files of each upload."""
    calls = []

    class StandIn:
        def create_repo(self, repo_id, *, private, exist_ok):
            calls.append(("create", repo_id, private, exist_ok))
            return f"https://huggingface.co/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, allow_patterns, commit_message):
            present = {path.relative_to(folder_path).as_posix() for path in Path(folder_path).rglob("*")}
            calls.append(("upload", repo_id, sorted(present & set(allow_patterns))))

    monkeypatch.setattr(huggingface_hub, "HfApi", StandIn)
    return calls


def test_a_dry_run_shows_the_files_and_uploads_nothing(there, hub, capsys):
    main(["push", CHECKPOINT, "me/towns", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == FILES
    sizes = [int(line.split()[0].replace(",", "")) for line in lines[1:]]
    assert sizes[:-1] == [(Path(CHECKPOINT) / name).stat().st_size for name in FILES]
    assert sizes[-1] == sum(sizes[:-1])
    assert lines[-1].endswith("5 files for me/towns")
    assert hub == []


@pytest.mark.parametrize("private", [False, True])
def test_the_folder_is_uploaded_and_the_address_printed(there, hub, capsys, private):
    main(["push", CHECKPOINT, "me/towns", *["--private"] * private])
    assert capsys.readouterr().out.strip() == "https://huggingface.co/me/towns"
    assert hub == [("create", "me/towns", private, True), ("upload", "me/towns", FILES)]


def test_hidden_files_stay_here(there, hub, tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "copy")
    (tmp_path / "copy" / ".cache").mkdir()
    (tmp_path / "copy" / ".cache" / "x").touch()
    main(["push", str(tmp_path / "copy"), "me/towns"])
    assert hub[1] == ("upload", "me/towns", FILES)


@pytest.mark.parametrize("name", ["towns", "me/to/wns", "me/", "me/to wns", "me/..", "https://huggingface.co/me/towns"])
def test_a_name_that_is_none_is_one_line(there, hub, capsys, name):
    assert f"{name}: not a name on huggingface.co; expected user/name" in failed(capsys, "push", CHECKPOINT, name)
    assert hub == []


def test_what_is_no_trained_model_is_refused(there, hub, capsys, tmp_path):
    make_encoder("bert", tmp_path / "encoder", ["cat"])
    assert "an encoder without a trained head" in failed(capsys, "push", str(tmp_path / "encoder"), "me/towns")
    assert "no such folder" in failed(capsys, "push", "runs/nowhere", "me/towns", "--dry-run")
    assert "lacks config.json" in failed(capsys, "push", str(Path(CHECKPOINT).parent), "me/towns", "--dry-run")
    assert hub == []


def answer(status):
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return errors.HfHubHTTPError(f"{status} from the hub", response=response)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (answer(401), "log in with `hf auth login`, or set HF_TOKEN"),
        (errors.LocalTokenNotFoundError("Token is required"), "log in with `hf auth login`, or set HF_TOKEN"),
        (answer(403), "take a name of a user or an organisation that you may write to"),
        (errors.OfflineModeIsEnabled("offline mode is enabled"), "unset HF_HUB_OFFLINE"),
        (ConnectionError("Name or service not known"), "check the connection"),
    ],
)
def test_a_failed_upload_says_why_and_what_to_do(there, hub, capsys, monkeypatch, error, advice):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", fail)
    line = failed(capsys, "push", CHECKPOINT, "me/towns")
    assert "me/towns: not uploaded to https://huggingface.co: " in line
    assert str(error).partition("\n")[0] in line
    assert line.partition("; ")[2].startswith(advice)
