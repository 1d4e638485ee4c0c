from rerank.evaluation.run_comparison import compare_measurements
from rerank.evaluation.tables.details import details_table
from rerank.evaluation.tables.table import render

LOW = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
HIGH = {"a": 0.31, "b": 0.39, "c": 0.5, "d": 0.62}
ROWS = {"bm25": {"AP": LOW, "nDCG": LOW}, "smoothi": {"AP": HIGH, "nDCG": LOW}}


def test_a_block_a_measure_with_everything_in_words() -> None:
    compared = compare_measurements(ROWS, [["a", "b"], ["c", "d"]], "bm25", "randomisation", "holm", intervals=True)
    text = render(details_table(compared, "2 folds, 4 queries", ["A note."], "bm25", "randomisation", "holm"))
    assert text.startswith("Comparison over 2 folds, 4 queries\n\nAP       mean [95 %]")
    line = next(line for line in text.splitlines() if line.startswith("smoothi  0.4550 ["))
    row = compared["AP"][1]
    for expected in (
        f"[{row.low:.4f}, {row.high:.4f}]*",
        "0.0674",
        "0.4550 ± 0.1050",
        f"+0.2050 [+{row.difference_low:.4f}, +{row.difference_high:.4f}]",
        f"{row.effect:+.2f}",
        f"{row.p:.4f}",
        "4/0/0",
        f"{row.detectable:.4f}",
    ):
        assert expected in line
    assert "\nbm25     0.2500 [" in text
    assert "reference\n" in text
    assert "10,000 bootstrap resamples of the queries" in text
    assert "two-sided paired randomisation test, 10,000 draws, corrected by Holm over the 1 other run of each" in text
    assert "detectable: the smallest difference that a paired t-test" in text
    assert text.endswith("nDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1).\nA note.\n")


def test_without_correction_folds_or_others() -> None:
    compared = compare_measurements(ROWS, correction="none", intervals=True)
    assert "t-test, not corrected." in render(details_table(compared, "4 queries", correction="none"))
    alone = render(details_table(compare_measurements({"bm25": ROWS["bm25"]}, intervals=True), "4 queries"), "markdown")
    assert "| AP | mean [95 %] | SE, queries |\n" in alone
    assert "detectable" not in alone
