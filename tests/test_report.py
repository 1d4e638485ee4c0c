from rerank.report import table

LOW = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
HIGH = {"a": 0.31, "b": 0.39, "c": 0.5, "d": 0.62}


def test_one_run_has_no_marks() -> None:
    assert table({"bm25": {"map": LOW}}, topics="topics of fold 1", notes=["bm25 lacks 1 of 4 topics."]) == (
        "Mean ± standard error over 4 topics of fold 1\n\n"
        "run   MAP\n"
        "bm25  0.2500 ± 0.0645\n\n"
        "bm25 lacks 1 of 4 topics.\n"
    )


def test_best_is_marked_and_what_is_worse_has_a_dagger() -> None:
    lines = table({"bm25": {"map": LOW, "P_5": LOW}, "smoothi": {"map": HIGH, "P_5": LOW}}).splitlines()
    assert lines[2:5] == [
        "run      MAP               P@5",
        "bm25     0.2500 ± 0.0645†  0.2500 ± 0.0645*",
        "smoothi  0.4550 ± 0.0674*  0.2500 ± 0.0645*",
    ]
    assert lines[6] == "*: best. †: worse than the best (two-sided paired t-test over the topics, p < 0.05)."


def test_lower_but_not_significantly_has_no_mark() -> None:
    noisy = {"a": 0.9, "b": 0.0, "c": 0.05, "d": 0.0}
    lines = table({"x": {"map": noisy}, "y": {"map": LOW}}).splitlines()
    assert lines[3].split("  ")[-1] == "0.2375 ± 0.2211"
    assert lines[4].endswith("*")


def test_error_is_over_folds_where_there_are_folds() -> None:
    text = table({"bm25": {"map": LOW}}, folds=[["a", "b"], ["c", "d"]])
    assert "over 2 folds, 4 topics\n" in text
    assert "bm25  0.2500 ± 0.1000\n" in text
    unequal = table({"bm25": {"map": LOW}}, folds=[["a"], ["b", "c", "d"]])
    assert "bm25  0.2000 ± 0.1000\n" in unequal  # the mean of the folds' means


def test_a_single_topic_has_no_error_and_no_test() -> None:
    text = table({"x": {"map": {"a": 0.5}}, "y": {"map": {"a": 0.25}}})
    assert "x    0.5000*\ny    0.2500\n" in text


def test_markdown_has_bold_and_blocks_of_five() -> None:
    names = ("P_1", "P_5", "P_10", "P_20", "map", "ndcg")
    text = table({"bm25": dict.fromkeys(names, LOW), "smoothi": dict.fromkeys(names, HIGH)}, markdown=True)
    assert "| run | P@1 | P@5 | P@10 | P@20 | MAP |\n|---|---|---|---|---|---|\n| bm25 | 0.2500 ± 0.0645† |" in text
    assert "| run | NDCG |\n|---|---|\n| bm25 | 0.2500 ± 0.0645† |\n| smoothi | **0.4550 ± 0.0674** |\n" in text
    assert "- NDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1).\n" in text
