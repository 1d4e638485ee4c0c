"""`rerank report`: one file that needs nothing else, whatever a collection's texts are, and says what is not there."""

import json
import re
import shutil
from datetime import date
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.experiments.runs.manifest import write_manifest
from rerank.experiments.runs.run_files import compare_files
from tests.support.parsed_html import Page
from tests.support.small_results import FIRST_STAGE, write_results

CHARTS_OF_ALL, CHARTS_OF_ONE = 1, 2


def report(folder, *words):
    main(["report", str(folder), "--measure", "nDCG@5", *words])
    return Page(Path(words[-1]) if words else folder / "report.html")


def edit(path, change):
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def page(written):
    """The page of all results."""
    return report(written / "runs" / "towns", "--out", str(written / "report.html"))


def test_the_page_has_every_part_and_needs_no_other_file(page, written):
    assert page.count("svg") == CHARTS_OF_ALL + 2 * CHARTS_OF_ONE
    assert "Not available" not in page.text
    for part in ("ideal re-ranking", "Most helped", "1.00 GiB", "Loss: hinge, margin 1.0, pairs all. Encoder: bert"):
        assert part in page.text
    assert page.count("script") == page.count("link") == page.count("img") == 0
    assert all(not (attributes.get("src") or "").startswith("http") for _, attributes in page.tags)
    links = [
        attributes.get("href") or attributes["xlink:href"] for name, attributes in page.tags if name in ("a", "use")
    ]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert links
    assert all(link.removeprefix("#") in ids for link in links)
    assert not re.search(r"url\((?!#)|@import", (written / "report.html").read_text())


def test_the_same_runs_are_the_same_bytes(page, written, capsys):
    folder = written / "runs" / "towns"
    report(folder)
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert (folder / "report.html").read_bytes() == (written / "report.html").read_bytes()
    (folder / "report.html").unlink()


def test_the_table_is_that_of_eval(page, written):
    folder = written / "runs" / "towns"
    runs = [folder / f"{FIRST_STAGE}.run", *(folder / name / "all.run" for name in ("good", "poor"))]
    values = re.findall(r"\d\.\d{4} ± \d\.\d{4}", str(compare_files(runs)))
    assert len(values) == 30
    assert all(value in page.text for value in values)


def test_the_page_has_differences_settings_and_the_measure_of_validation(page, written):
    folder = written / "runs" / "towns"
    runs = [folder / f"{FIRST_STAGE}.run", *(folder / name / "all.run" for name in ("good", "poor"))]
    details = compare_files(runs).details()
    for interval in re.findall(r"[+-]\d\.\d{4} \[[^]]+\]", details):
        assert interval in page.text
    assert page.text.count("Settings and versions") == 2
    for part in ("first_stage.depth", "training.seed", "validation (nDCG@20)", date.today().isoformat()):
        assert part in page.text


def test_one_epoch_is_a_table_and_no_curve(tmp_path):
    page = report(write_results(tmp_path, {"short": 1.0}, epochs=1))
    assert "one epoch a fold is no curve; the table of folds has its values" in page.text
    assert "validation (nDCG@20)" in page.text


def test_the_page_of_run_files_has_what_runs_and_judgments_tell(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [str(folder / name) for name in (f"{FIRST_STAGE}.run", "good/all.run", "poor/all.run")]
    main(["report", *runs, "--measure", "nDCG@5"])
    page = Page(tmp_path / "report.html")
    assert page.count("svg") == CHARTS_OF_ALL + 2
    assert "ids are shown: no --collection is named" in page.text
    assert "speed, memory" not in page.text
    assert all(
        value in page.text for value in re.findall(r"\d\.\d{4} ± \d\.\d{4}", str(compare_files(map(Path, runs))))
    )
    main(["report", *runs, "--collection", "towns", "--out", "texts.html"])
    page = Page(tmp_path / "texts.html")
    assert "ids are shown" not in page.text
    assert page.count("mark") > 0


def test_texts_of_a_collection_are_never_markup(folder, tmp_path):
    evil = "<script>alert('x')</script> </td></svg> \"quoted\" & 'single' <img src=x onerror=alert(1)>"
    edit(tmp_path / "towns" / "corpus.jsonl", lambda row: {**row, "text": f"{evil} {row['text']}"})
    edit(tmp_path / "towns" / "queries.jsonl", lambda row: {**row, "text": f"{row['text']} {evil}"})
    page = report(folder)
    assert page.count("script") == page.count("img") == 0
    assert page.text.count(evil) >= 15  # the queries' texts; those of documents have words of the query marked
    assert page.count("mark") > 0


def test_the_most_changed_queries_have_their_documents_and_the_querys_words_marked(page, written):
    source = (written / "report.html").read_text()
    summaries = re.findall(r'<summary><span class="(up|down)">([+-]\d\.\d{3})</span> (q\d+): (\w+)</summary>', source)
    assert 20 <= len(summaries) <= 40
    for way, change, query_id, text in summaries:
        assert (way == "up") == (float(change) > 0)
        assert text.endswith(query_id.removeprefix("q"))
    first = source.index(f"{summaries[0][2]}: {summaries[0][3]}</summary>")
    assert f"<mark>{summaries[0][3]}</mark>" in source[first : source.index("</details>", first)]
    assert "1 relevant" in page.text


def test_without_queries_the_page_says_why(folder, tmp_path):
    (tmp_path / "towns" / "queries.jsonl").unlink()
    page = report(folder)
    assert "The texts of queries or documents are not available" in page.text
    assert "no queries.jsonl" in page.text


def test_without_the_collection_ids_stand_for_texts_and_the_page_says_why(folder, tmp_path, capsys):
    shutil.rmtree(tmp_path / "towns")
    page = report(folder)
    assert "The texts of queries or documents are not available" in page.text
    assert "no such folder" in page.text
    assert "no texts: " in capsys.readouterr().err
    assert re.search(r"[+-]\d\.\d{3} q\d+\d\.\d{3} before", page.text)
    assert re.search(r"d\d+-\d", page.text)
    assert page.count("svg") == CHARTS_OF_ALL + 2 * CHARTS_OF_ONE


def test_what_is_missing_is_said_in_a_line_where_it_would_stand(folder):
    (folder / f"{FIRST_STAGE}.run").unlink()
    for file in [*folder.glob("good/fold*/log.jsonl"), *folder.glob("poor/fold*/manifest.json")]:
        file.unlink()
    page = report(folder)
    for reason in (
        f"good: the first stage's run {folder / FIRST_STAGE}.run is missing; restore it",
        "good: no fold has a log.jsonl",
    ):
        assert f"Not available: {reason}" in page.text
    assert page.count("svg") == 1  # the curves of poor


def test_files_without_optional_keys_are_shown(folder):
    settings = folder / "good" / "config.toml"
    text = settings.read_text()
    settings.write_text(text[: text.index("[loss]")] + text[text.index("[training]") :])
    for log in folder.glob("good/fold*/log.jsonl"):
        edit(log, lambda row: {key: row[key] for key in ("epoch", "valid")})
    page = report(folder)
    assert "Loss: smoothi. " in page.text
    assert page.count("svg") == CHARTS_OF_ALL + 2 * CHARTS_OF_ONE


def test_an_experiment_with_unfinished_folds_is_named_and_not_in_the_table(folder):
    (folder / "poor" / "fold3" / "test.run").unlink()
    (folder / "poor" / "all.run").unlink()
    page = report(folder)
    assert "Not all folds of poor are finished" in page.text
    assert page.count("svg") == CHARTS_OF_ALL + 2 * CHARTS_OF_ONE


def test_feature_vectors_have_neither_texts_nor_a_first_stage(folder):
    shutil.rmtree(folder / "good")
    (folder / f"{FIRST_STAGE}.run").unlink()
    absent = ("tokens", "first_stage")
    for fold in folder.glob("poor/fold*"):
        edit(fold / "log.jsonl", lambda row: {key: value for key, value in row.items() if key not in absent})
        facts = json.loads((fold / "manifest.json").read_text())
        del facts["texts"]
        write_manifest(fold / "manifest.json", {**facts, "features": {"width": 46}})
    page = report(folder)
    assert "poor: feature vectors have no first stage" in page.text
    assert "ids are shown: feature vectors have none" in page.text
    assert "Hidden units: 1024." in page.text
    assert page.count("svg") == 1  # its curves
    assert re.search(r"poor, fold 1310\.5000–1\.5–8", page.text)  # the first stage and tokens/s are missing
