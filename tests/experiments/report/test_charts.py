"""`rerank plot`: every chart as a file, against loops and examples by hand, and every mistake as one line."""

import html
import json
import re

import pytest

from rerank.cli.main import main
from rerank.data.trec import write_run
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.report.depth import depths, ideal
from rerank.experiments.report.drawing import CSS_NAMES, inline_svg
from rerank.experiments.report.plot import CHARTS, chart_figure, gains, logged_folds
from rerank.experiments.runs.results import open_results
from rerank.utils.errors import UserError
from tests.support.small_collection import failed
from tests.support.small_results import DEPTH, FIRST_STAGE

HEADS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.mark.parametrize(
    ("chart", "ending"),
    [*((chart, "svg") for chart in CHARTS), ("gain", "pdf"), ("depth", "png")],
)
def test_every_chart_is_a_file_and_the_same_bytes_again(folder, tmp_path, capsys, chart, ending):
    of = folder if chart == "depth" else folder / "good"
    written = []
    for name in ("first", "again"):
        main(["plot", chart, str(of), "--out", str(tmp_path / f"{name}.{ending}"), "--measure", "P@5"])
        written.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(HEADS[ending])
    assert capsys.readouterr().out.split()[-1] == str(tmp_path / f"again.{ending}")


@pytest.mark.parametrize("chart", CHARTS)
def test_inline_colours_are_the_pages_and_ids_its_own(folder, chart):
    results = open_results(folder / "good", "AP")
    figure = chart_figure(chart, results, *([] if chart == "depth" else results.experiments))
    svg = inline_svg(figure, "key", 'a "label" <of> it')
    assert svg.startswith("<svg viewBox=")
    assert 'aria-label="a &quot;label&quot; &lt;of&gt; it"' in svg
    assert not re.findall("|".join(CSS_NAMES), svg)
    assert "var(--ink)" in svg
    ids = re.findall(r'\bid="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("key-") for name in ids)
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]*)', svg)) <= set(ids)


def test_a_querys_text_shows_over_its_bar_and_stays_text(folder, tmp_path):
    main(["plot", "gain", str(folder / "good"), "--out", str(tmp_path / "gain.svg")])
    svg = (tmp_path / "gain.svg").read_text()
    assert len(re.findall(r"<title>q\d+ — \d\.\d{3} → \d\.\d{3} \([+-]\d\.\d{3}\)</title>", svg)) == 15
    results = open_results(folder / "good", "AP")
    results.queries.update(dict.fromkeys(results.qrels, 'a "b" <script>& it\'s'))
    inline = inline_svg(chart_figure("gain", results, *results.experiments), "key", "gain")
    assert "<script" not in inline
    assert len(re.findall("<title>", inline)) == 15
    titles = [html.unescape(title) for title in re.findall("<title>(.*?)</title>", inline)]
    assert all(re.fullmatch(r"""q\d+: a "b" <script>& it's — .*""", title) for title in titles)


@pytest.mark.parametrize("chart", ["depth", "gain"])
def test_run_files_have_the_charts_of_the_experiment_that_wrote_them(folder, tmp_path, chart):
    """The folder's first stage has more documents than were re-ranked; here it has those."""
    out, first = str(tmp_path / "chart.svg"), tmp_path / f"{FIRST_STAGE}.run"
    write_run(open_results(folder / "good", "AP").experiments[0].first_stage, first, "bm25")
    main(["plot", chart, str(folder / "good"), "--out", out])
    expected = (tmp_path / "chart.svg").read_text()
    files = [str(first), str(folder / "good" / "all.run"), "--qrels", str(folder / "qrels.txt")]
    main(["plot", chart, *files, "--out", out])
    assert (tmp_path / "chart.svg").read_text() == expected


def test_wrong_run_files_are_one_line(folder, tmp_path, capsys):
    first, good, poor = (str(folder / name) for name in (f"{FIRST_STAGE}.run", "good/all.run", "poor/all.run"))
    for chart, paths, expected in (
        ("gain", [first], "is one run; expected two or more"),
        (
            "gain",
            [first, good, poor],
            "gain: shows one experiment, got good, poor; expected the folder of one, or two run files",
        ),
        ("gain", [first, str(folder)], f"{folder}: is a folder; expected only this folder, or only run files"),
        ("learning", [first, good], "learning: needs the folder of an experiment; run files have depth, gain"),
        ("depth", [good, first], "which good does not have; expected a re-ranking of it"),
    ):
        assert expected in failed(capsys, "plot", chart, *paths, "--out", str(tmp_path / "chart.pdf"))


def test_mistakes_are_one_line(folder, tmp_path, capsys):
    out = str(tmp_path / "chart.pdf")
    assert "no such chart; did you mean depth?" in failed(capsys, "plot", "deph", str(folder), "--out", out)
    assert "expected a name that ends in .pdf, .svg, .png" in failed(
        capsys, "plot", "depth", str(folder), "--out", "x.jpg"
    )
    assert "unknown 'ndgc'" in failed(capsys, "plot", "depth", str(folder), "--out", out, "--measure", "ndgc")
    assert "gain: shows one experiment, got good, poor" in failed(capsys, "plot", "gain", str(folder), "--out", out)
    for log in folder.glob("good/fold*/log.jsonl"):
        log.unlink()
    assert "good: no fold has a log.jsonl" in failed(capsys, "plot", "learning", str(folder / "good"), "--out", out)
    assert not (tmp_path / "chart.pdf").exists()


def mean(results, run, measure="nDCG@5"):
    values = evaluate(results.qrels, run, [measure])[measure]
    return sum(values.values()) / len(values)


def test_depth_goes_from_the_first_stage_to_the_run_below_the_upper_bound(results):
    data = depths(results)
    good = results.experiments[0]
    assert (data.depths[0], data.depths[-1]) == (0, DEPTH)
    for name, line in data.reached.items():
        assert line[0] == pytest.approx(mean(results, good.first_stage))
        assert all(value <= most + 1e-12 for value, most in zip(line, data.upper_bounds[FIRST_STAGE], strict=True)), (
            name
        )
    assert data.reached["good"][-1] == pytest.approx(mean(results, good.run))
    assert data.upper_bounds[FIRST_STAGE][-1] == pytest.approx(mean(results, ideal(good.first_stage, results.qrels)))


def test_gains_are_differences_most_helped_first(results):
    data = gains(results, results.experiments[0])
    good = results.experiments[0]
    before, after = (evaluate(results.qrels, run, ["nDCG@5"])["nDCG@5"] for run in (good.first_stage, good.run))
    assert [query.gain for query in data] == sorted((after[q] - before[q] for q in before), reverse=True)
    assert sum(after.values()) > sum(before.values())


def test_the_kept_epoch_is_the_first_of_the_best(results, folder):
    assert {fold.kept["epoch"] for fold in logged_folds(results.experiments[0])} == {1}
    log = folder / "good" / "fold2" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records[1]["valid"] = records[2]["valid"] = 0.6
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [fold.kept["epoch"] for fold in logged_folds(open_results(folder, "AP").experiments[0])] == [1, 2, 1]


def test_the_learning_curves_have_the_first_stage_beside_the_validation_values(folder, tmp_path):
    main(["plot", "learning", str(folder / "good"), "--out", str(tmp_path / "curves.svg")])
    svg = (tmp_path / "curves.svg").read_text()
    for fold in "123":
        assert f"<title>fold {fold}: epoch 1 kept, validation 0.5000</title>" in svg
        assert f"<title>fold {fold}: first stage 0.2500</title>" in svg


def test_no_common_query_is_no_chart(folder):
    for number in ("1", "2"):
        (folder / "good" / f"fold{number}" / "test.run").unlink()
    (folder / "poor" / "fold3" / "test.run").unlink()
    with pytest.raises(UserError, match="no query was tested by all experiments"):
        depths(open_results(folder, "AP"))
