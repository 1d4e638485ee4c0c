"""The folder of a stranger, opened for reading: nothing outside it is read, written or removed, and nothing in it."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

import rerank
from rerank.cli.main import main
from rerank.experiments.runs.manifest import write_manifest
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.stages import BM25Stage, DenseStage, FusionStage, LateInteractionStage
from rerank.utils.integrity import files_below, record_of
from tests.support.small_collection import ended, failed, in_a_copy

FOLDER = Path("given/pipeline")
SEARCH = ("search", str(FOLDER), "alpha0 good")
READING = {
    "search": SEARCH,
    "score": ("score", str(FOLDER), "--out", "new.run"),
    "verify": ("verify", str(FOLDER)),
    "report": ("report", str(FOLDER), "--out", "new.html"),
}


@pytest.fixture(scope="module")
def home(home, tmp_path_factory, the_last_stage_answers):
    """A copy of the collection with a portable pipeline, fitted without judgments, and a folder of the victim."""
    stages = {
        "bm25": BM25Stage(),
        "dense": DenseStage("encoder"),
        "late": LateInteractionStage("bm25", "encoder", depth=10),
    }
    stages["fused"] = FusionStage(("dense", "late"))
    with in_a_copy(home, tmp_path_factory) as folder:
        shutil.rmtree("towns/qrels")
        rerank.fit("towns", Pipeline(stages), out=FOLDER, portable=True)
        (folder / "victim" / "new").mkdir(parents=True)
        for name in ("file", "new/file", "corpus.jsonl"):
            (folder / "victim" / name).write_text("the victim's")
    return folder


@pytest.fixture(autouse=True)
def cache(here, monkeypatch, tmp_path):
    """An empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rerank"


def contents(*folders):
    files = [path for folder in folders for path in Path(folder).rglob("*")]
    return {path: path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes() for path in files}


def forged(**changed):
    """Gives the manifest other facts, and every hash in it anew, as whoever writes the folder can."""
    facts = json.loads((FOLDER / "manifest.json").read_text())
    kept = ("index", "embeddings", "manifest.json")
    files = [file for file in files_below(FOLDER) if file.relative_to(FOLDER).parts[0] not in kept]
    facts |= {"pipeline": facts["pipeline"] | changed, "files": record_of(FOLDER, files)}
    write_manifest(FOLDER / "manifest.json", facts)


def test_reading_writes_neither_into_a_folder_nor_beside_it(here, cache, capsys):
    """What an index or vectors lack is made in the user's cache, once."""
    before = contents("given")
    main([*SEARCH])
    hits = capsys.readouterr().out
    for words in READING.values():
        assert ended(words) == 0
    assert contents("given") == before
    for name in ("index", "embeddings"):
        shutil.rmtree(FOLDER / name)
    before = contents("given")
    capsys.readouterr()
    for _ in range(2):
        main([*SEARCH])
        assert capsys.readouterr().out == hits
    assert contents("given") == before
    assert list((cache / "pipelines").glob("*/index/*/segments_*"))


def test_an_index_in_the_cache_is_of_the_documents_that_are_there(here, capsys):
    """A manifest may claim the fingerprint of a collection that someone else searches."""
    shutil.rmtree(FOLDER / "index")
    main([*SEARCH])
    corpus = FOLDER / "documents" / "corpus.jsonl"
    lines = [json.loads(line) for line in corpus.read_text().splitlines()]
    corpus.write_text("".join(json.dumps(line | {"text": f"{line['text']} unheard"}) + "\n" for line in lines))
    forged()
    main(["search", str(FOLDER), "unheard"])
    assert "*unheard*" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["..", "../../victim/x", "/victim", "a/b", ""])
def test_a_collection_whose_name_is_a_path_is_refused(here, name, capsys):
    forged(name=name)
    assert "manifest.json: expected `str` matching regex" in failed(capsys, *SEARCH)


@pytest.mark.parametrize("folder", ["/victim", "../../victim", "documents"])
def test_a_manifest_does_not_say_where_a_portable_folder_writes(here, folder):
    for name in ("index", "embeddings"):
        shutil.rmtree(FOLDER / name)
    forged(folder=str(here / "victim") if folder == "/victim" else folder)
    before = contents("given", "victim")
    main([*SEARCH])
    assert contents("given", "victim") == before


@pytest.mark.parametrize("command", READING)
def test_a_manifest_does_not_say_what_a_portable_folder_reads(here, command, capsys):
    """Queries and documents are those in the folder, whatever the manifest names."""
    Path("victim/queries.jsonl").write_text('{"_id": "q0", "text": "the victim\'s"}\n')
    forged(collection={"source": str(here / "victim"), "queries": str(here / "victim" / "queries.jsonl")})
    assert ended(READING[command]) == 0
    assert "victim" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("place", ["", "encoder", "../../encoder", "./../../encoder", "/", None])
def test_a_model_outside_a_portable_folder_is_refused(here, place, capsys):
    places = json.loads((FOLDER / "manifest.json").read_text())["pipeline"]["places"]
    forged(places={} if place is None else dict.fromkeys(places, place))
    for words in (SEARCH, READING["score"], READING["verify"]):
        line = failed(capsys, *words)
        assert "in the folder, got" in line or "leads out of given/pipeline" in line


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    "name", ["index", "evidence.json", "manifest.json", "documents/corpus.jsonl", "stages/link", "tokens"]
)
def test_links_out_of_a_folder_are_refused(here, name, command, capsys):
    """Also of files that no manifest records, and of those that `evidence.json` and `verify` read alone."""
    path = FOLDER / name
    if name == "tokens":
        (path,) = FOLDER.glob("embeddings/*/tokens")
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(here / "victim" / ("new" if name in ("index", "tokens") else "file"))
    before = contents("given", "victim")
    assert f"{path}: is a link that leads out of {FOLDER}; expected a file in the folder" in failed(
        capsys, *READING[command]
    )
    assert contents("given", "victim") == before


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["evidence.json", "stages/fused/weights.json", "documents/corpus.jsonl"])
def test_what_is_no_regular_file_is_refused(here, name, make, capsys):
    path = FOLDER / name
    path.unlink()
    make(path)
    for words in READING.values():
        assert failed(capsys, *words).startswith("rerank: ")


@pytest.mark.parametrize("command", READING)
def test_a_bit_flipped_in_the_evidence_is_refused(here, command, capsys):
    content = bytearray((FOLDER / "evidence.json").read_bytes())
    content[len(content) // 2] ^= 1
    (FOLDER / "evidence.json").write_bytes(content)
    line = failed(capsys, *READING[command])
    assert f"{FOLDER}: changed since it was written: evidence.json: expected XXH3 " in line


WRONG = (None, True, -1, 1.5, "x", [], ["x"], {}, {"x": "y"})


@pytest.mark.parametrize("name", ["evidence.json", "manifest.json"])
def test_wrong_types_under_true_hashes_are_one_line(here, name, capsys):
    """Each value of a file in turn has another type; what is left out is missing."""
    text = (FOLDER / "evidence.json").read_text()
    keys = json.loads(text) if name == "evidence.json" else json.loads((FOLDER / name).read_text())["pipeline"]
    rng = random.Random(name)
    for key in keys:
        value = rng.choice(WRONG)
        changed = {inner: one for inner, one in keys.items() if inner != key} | (
            {key: value} if value is not None else {}
        )
        if name == "evidence.json":
            (FOLDER / name).write_text(json.dumps(changed))
            forged()
        else:
            facts = json.loads((FOLDER / name).read_text())
            write_manifest(FOLDER / name, facts | {"pipeline": changed})
        for words in (READING["report"], READING["verify"]):
            try:
                code = ended(words)
            except Exception as error:
                pytest.fail(f"{key} = {value!r}: {words[0]}: {type(error).__name__}: {error}")
            assert code in (0, 2), (key, value, words[0])
        capsys.readouterr()


@pytest.mark.parametrize("weights", [[-1, 2], [0, 0], [1], ["1", 1], [None, 1], {}, [[], 1]])
def test_weights_that_no_fusion_has_are_one_line(here, weights, capsys):
    (FOLDER / "stages" / "fused" / "weights.json").write_text(json.dumps(weights))
    forged()
    for words in (SEARCH, READING["score"], READING["verify"]):
        assert "weights.json: expected " in failed(capsys, *words)


def test_a_recorded_file_outside_the_folder_is_refused(here, capsys):
    for name in ("../../victim/file", str(here / "victim" / "file"), "/dev/zero"):
        facts = json.loads((FOLDER / "manifest.json").read_text())
        facts["files"][name] = {"bytes": 12, "xxh3_128": "0" * 32}
        write_manifest(FOLDER / "manifest.json", facts)
        assert "leads out of given/pipeline" in failed(capsys, *SEARCH)
        del facts["files"][name]
        write_manifest(FOLDER / "manifest.json", facts)


def test_what_is_named_like_a_leftover_is_not_removed(here):
    """A folder like one of a dead process, and a link like one, to a folder with `new` and `old`."""
    names = [".x.0123456789abcdef.part", f".x.{'0' * 8}-1-{'0' * 8}-{'0' * 8}-{'0' * 16}.part"]
    for name in names:
        (FOLDER.parent / name).symlink_to(here / "victim")
        (FOLDER.parent / f".y{name}" / "y.old").mkdir(parents=True)
        (FOLDER.parent / f".y{name}" / "y").mkdir()
    before = contents("given", "victim")
    for words in (*READING.values(), ("search", "given/nothing", "good")):
        ended(words)
    assert contents("given", "victim") == before


def test_an_update_of_a_manifest_that_names_another_folder_does_not_write_there(here):
    rerank.fit("towns", Pipeline({"bm25": BM25Stage()}), out="given/other")
    facts = json.loads(Path("given/other/manifest.json").read_text())
    facts["pipeline"]["folder"] = "../../victim"
    write_manifest(Path("given/other/manifest.json"), facts)
    with Path("towns/corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "new", "title": "", "text": "unheard"}\n')
    before = contents("victim")
    main(["update", "given/other"])
    assert contents("victim") == before


def test_a_report_does_not_replace_a_link(here, capsys):
    link = Path("given/pipeline-report.html")
    link.symlink_to(here / "victim" / "file")
    assert f"{link}: is a link, which is not followed; remove it" in failed(capsys, "report", str(FOLDER))
    assert (here / "victim" / "file").read_text() == "the victim's"


def test_a_portable_folder_has_the_files_of_the_encoder_that_are_read(here, capsys):
    for name in (".env", ".git/config.json", ".ssh/id_rsa", "notes.txt", "secrets.json", "private/model.safetensors"):
        (here / "encoder" / name).parent.mkdir(exist_ok=True)
        (here / "encoder" / name).write_text("the victim's")
    fit = ("fit", "towns", "--encoder", "encoder", "--portable", "--out", "new")
    main([*fit])
    (copied,) = Path("new/encoders").iterdir()
    names = {path.relative_to(copied).as_posix() for path in files_below(copied)}
    assert {"config.json", "model.safetensors", "tokenizer.json"} < names
    assert not names & {
        ".env",
        ".git/config.json",
        ".ssh/id_rsa",
        "notes.txt",
        "secrets.json",
        "private/model.safetensors",
    }
    (here / "encoder" / "added_tokens.json").symlink_to(here / "victim" / "file")
    assert "added_tokens.json: is a link that leads out of encoder" in failed(capsys, *fit)
