from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest

from rerank.models.hub import encoder_folder
from rerank.utils.errors import UserError
from tests.support.tiny_encoders import make_encoder

WORDS = ["cat", "mat"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache and no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def put(cache: Path, name: str) -> Path:
    model = cache / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    return make_encoder("bert", model / "snapshots" / ("0" * 40), WORDS)


def test_a_folder_is_taken_as_it_is_and_a_name_is_found_in_the_cache_without_a_network(cache: Path) -> None:
    folder = put(cache, "someone/tiny")
    assert encoder_folder(str(folder)) == encoder_folder("someone/tiny") == folder


@pytest.mark.parametrize("lacking", ["config.json", "model.safetensors", "tokenizer.json"])
def test_incomplete_folder_names_what_it_lacks(lacking: str, tmp_path: Path, cache: Path) -> None:
    folder = make_encoder("bert", tmp_path / "bert", WORDS)
    (folder / lacking).unlink()
    part = {"model.safetensors": "weights", "tokenizer.json": "a tokenizer"}.get(lacking, lacking)
    with pytest.raises(UserError, match=f"^encoder {folder}: the folder lacks {part};"):
        encoder_folder(str(folder))
    (put(cache, "someone/tiny") / lacking).unlink()
    with pytest.raises(UserError, match="someone/tiny: "):
        encoder_folder("someone/tiny")


def test_name_that_is_nowhere_says_where_it_was_looked_for(cache: Path) -> None:
    with pytest.raises(UserError) as raised:
        encoder_folder("someone/nothing")
    for part in ("encoder someone/nothing: no such folder", str(cache), "huggingface.co", "HF_HOME"):
        assert part in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["./nowhere", "a/b/c", "", "no such name", __file__])
def test_what_cannot_be_a_name_is_a_missing_folder(name: str, cache: Path) -> None:
    with pytest.raises(UserError, match="is a file, expected a folder" if name == __file__ else "check the path|lacks"):
        encoder_folder(name)


def test_pickles_are_downloaded_for_the_modules_that_have_nothing_else(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older models of sentence-transformers have a dense layer without safetensors."""
    import huggingface_hub

    hub, target = make_encoder("bert", tmp_path / "hub", WORDS), tmp_path / "target"
    (hub / "modules.json").write_text('[{"path": "", "type": "Transformer"}, {"path": "2_Dense", "type": "Dense"}]')
    (hub / "2_Dense").mkdir()
    for name in ("pytorch_model.bin", "2_Dense/pytorch_model.bin", "2_Dense/config.json"):
        (hub / name).write_text("{}")

    def download(name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not in the cache")
        files = {file.relative_to(hub) for file in hub.rglob("*") if file.is_file()}
        for file in files:
            if any(fnmatch(str(file), pattern) for pattern in allow_patterns):
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                (target / file).write_bytes((hub / file).read_bytes())
        return str(target)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert encoder_folder("someone/dense") == target
    assert [file.relative_to(target) for file in target.rglob("*.bin")] == [Path("2_Dense/pytorch_model.bin")]


def test_name_that_the_hub_does_not_have(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def nothing(*_: object, local_files_only: bool = False, **__: object) -> None:
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not in the cache")
        answer = SimpleNamespace(headers={}, request=None)
        raise huggingface_hub.errors.RepositoryNotFoundError("not found", response=answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", nothing)
    with pytest.raises(UserError, match="has no model of this name that you may read; check the name"):
        encoder_folder("someone/nothing")
