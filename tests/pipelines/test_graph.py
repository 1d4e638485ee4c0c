"""Pipelines as graphs and as TOML: their order, what is read back, and what is refused in one line."""

import pytest

from rerank.pipelines.graph import as_toml, in_order, prefix, read_pipeline, without
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.stages import (
    BM25Stage,
    CrossEncoderStage,
    DenseStage,
    FeaturesStage,
    FeedbackStage,
    FusionStage,
    QueryAdapterStage,
    TrainedEncoderStage,
)
from rerank.utils.errors import UserError

STAGES = {
    "bm25": BM25Stage(k1=1.2, b=0.75),
    "dense": DenseStage("encoder"),
    "more": FeedbackStage(("bm25", "dense"), "encoder"),
    "first": FusionStage(("bm25", "dense", "more")),
    "answer": CrossEncoderStage("first", "bert-base-uncased", loss="hinge"),
}


def test_each_stage_comes_after_those_below_it():
    backwards = dict(reversed(STAGES.items()))
    assert list(in_order(backwards)) == ["dense", "bm25", "more", "first", "answer"]
    assert list(prefix(STAGES, "more")) == ["bm25", "dense", "more"]


def test_stages_that_are_left_out_give_way_to_those_below_them():
    more = {**STAGES, "adapter": QueryAdapterStage("answer", "encoder")}
    left = without(more, ["answer"])
    assert left["adapter"] == QueryAdapterStage("first", "encoder")
    assert without(more, ["first", "answer"])["adapter"].of == "more"
    assert list(without(STAGES, ["bm25"])) == ["dense", "more", "first", "answer"]
    assert without(STAGES, ["bm25"])["first"].of == ("dense", "more")
    assert list(without(STAGES, ["dense", "more"])) == ["bm25", "answer"]  # a fusion of one stage goes
    assert without(STAGES, ["dense", "more"])["answer"].of == "bm25"
    combined = {"bm25": BM25Stage(), "dense": DenseStage("e"), "combined": FeaturesStage(("bm25", "dense"))}
    assert list(without(combined, ["dense"])) == ["bm25"]  # as does a sum of one stage
    weighted = {**STAGES, "first": FusionStage(("bm25", "dense", "more"), weights=(0.5, 0.3, 0.2))}
    assert without(weighted, ["dense"])["first"].weights == (0.5, 0.2)
    with pytest.raises(UserError, match=r"--without anser: no such stage; did you mean answer\?"):
        without(STAGES, ["anser"], "--without")
    with pytest.raises(UserError, match="has no stage"):
        without(STAGES, list(STAGES))


def test_a_pipeline_is_read_back_from_its_toml(tmp_path):
    (tmp_path / "p.toml").write_text(as_toml(STAGES))
    assert read_pipeline(tmp_path / "p.toml") == STAGES
    assert repr(Pipeline.read(tmp_path / "p.toml")) == (
        "Pipeline(bm25, dense, more: feedback of bm25, dense, first: fusion of bm25, dense, more, "
        "answer: cross-encoder of first)"
    )


def test_sub_tables_are_settings_of_an_experiment(tmp_path):
    (tmp_path / "p.toml").write_text(
        '[stages.bm25]\nkind = "bm25"\n[stages.answer]\nkind = "cross-encoder"\nof = "bm25"\n'
        '[stages.answer.encoder]\nname = "e"\nmax_doc_tokens = 200\n[stages.answer.training]\nlr = 1\n'
        '[stages.answer.loss]\nname = "smoothi"\nalpha = 10.0\n'
    )
    answer = read_pipeline(tmp_path / "p.toml")["answer"]
    assert (answer.encoder.max_doc_tokens, answer.training.lr, answer.training.epochs) == (200, 1.0, 100)
    assert (answer.loss.name, answer.loss.hyperparameters) == ("smoothi", {"alpha": 10.0})


BM25_TABLE = '[stages.bm25]\nkind = "bm25"\n'
DENSE_TABLE = '[stages.dense]\nkind = "dense"\nencoder = "e"\n'
ADAPTED = '[stages.a]\nkind = "query-adapter"\nof = "bm25"\n'
COMBINED = '[stages.a]\nkind = "features"\nof = ["bm25", "dense"]\n'
RE_RANKED = '[stages.a]\nkind = "cross-encoder"\nof = "bm25"\n'
MISTAKES = {
    "": "has no stage",
    "stages = 3": "stages: expected tables",
    "[other]": r"\[other\]: expected only tables \[stages.NAME\]",
    "[stages.bm25]\nk1 = 1.0": r"\[stages.bm25\] kind: is missing; expected one of bm25, ",
    '[stages.x]\nkind = "bm52"': r"\[stages.x\] kind: got bm52; did you mean bm25",
    BM25_TABLE + "k3 = 1.0": r"\[stages.bm25\] k3: no such setting; .*k1",
    BM25_TABLE + 'k1 = "high"': r"\[stages.bm25\] k1: expected `float`, got `str`",
    BM25_TABLE + "depth = 0": r"\[stages.bm25\] depth: got 0, expected 1 or more",
    BM25_TABLE + "b = 1.5": r"\[stages.bm25\] b: got 1.5, expected 0 to 1",
    '[stages.one]\nkind = "run"': r"\[stages.one\] file: is missing",
    BM25_TABLE + DENSE_TABLE: "stages bm25, dense are below no other.*expected one",
    BM25_TABLE + '[stages.f]\nkind = "fusion"\nof = ["bm25", "dens"]': "stage f: of dens: no such stage",
    BM25_TABLE + '[stages.f]\nkind = "fusion"\nof = ["bm25"]': "stage f: of bm25: expected two stages or more",
    BM25_TABLE
    + DENSE_TABLE
    + '[stages.f]\nkind = "fusion"\nof = ["bm25", "dense"]\nweights = [1]': "each of the 2 runs, got 1",
    BM25_TABLE
    + '[stages.f]\nkind = "feedback"\nof = []\nencoder = "e"': "of: is missing; expected the name of a stage",
    BM25_TABLE + '[stages.f]\nkind = "fusion"\nof = ["bm25", "bm25"]': "stage f: of bm25, bm25: .*named twice",
    BM25_TABLE + DENSE_TABLE + '[stages.a]\nkind = "cross-encoder"\nof = ["bm25", "dense"]': "expected one stage",
    BM25_TABLE + RE_RANKED + 'training.lists = "lists.jsonl"': "training.lists lists.jsonl: has no effect",
    BM25_TABLE + RE_RANKED + 'training.measure = "nDGC"': r"stage a: .*unknown 'nDGC' \(did you mean nDCG",
    BM25_TABLE + RE_RANKED + 'loss.name = "margin_mse"': "margin_mse: learns from a teacher's scores",
    BM25_TABLE + ADAPTED + 'training.measure = "nDGC"': r"stage a: .*unknown 'nDGC' \(did you mean nDCG",
    BM25_TABLE + ADAPTED + 'training.lists = "lists.jsonl"': "training.lists lists.jsonl: has no effect",
    BM25_TABLE + ADAPTED + "training = 3": r"\[stages.a\] training: got 3, expected a table of settings",
    BM25_TABLE + ADAPTED + 'loss.name = ["hinge"]': r"\[stages.a\] loss name: expected `str`, got `array`",
    BM25_TABLE + ADAPTED + "loss.alpha = [1]": r"\[stages.a\] loss hyperparameters: .*got `array`",
    BM25_TABLE + ADAPTED + "loss.hyperparameters = 3": "stage a: .*hyperparameters",
    BM25_TABLE + ADAPTED + 'loss = "hing"': r"stage a: --loss hing: no such loss; did you mean hinge\?",
    BM25_TABLE + DENSE_TABLE + COMBINED + 'loss = "margin_mse"': "--training.measure loss: margin_mse needs a teacher",
    BM25_TABLE
    + DENSE_TABLE
    + '[stages.f]\nkind = "fusion"\nof = ["bm25", "dense"]\nmeasure = "nDGC"': r"stage f: .*unknown 'nDGC'",
    BM25_TABLE
    + RE_RANKED
    + '[stages.f]\nkind = "features"\nof = ["bm25", "a"]': "stage f: of a: that is fitted once .* take a fusion",
    '[stages.nested]\nkind = "bm25"': "stage nested: expected .* neither nested nor runs",
    '[stages.a]\nkind = "fusion"\nof = ["b", "c"]\n[stages.b]\nkind = "fusion"\nof = ["a", "c"]\n'
    '[stages.c]\nkind = "bm25"': "stages a, b need each other; expected no circle",
    '[stages."a/b"]\nkind = "bm25"': "stage a/b: expected letters, digits",
    "[stages.bm25": "not TOML",
}


def test_a_fusion_learns_above_a_stage_that_is_fitted_once_a_part():
    trained, frozen = CrossEncoderStage("bm25"), CrossEncoderStage("bm25", trained=False)
    fused = FusionStage(("bm25", "a"))
    assert Pipeline(bm25=BM25Stage(), a=trained, f=fused).answer == "f"
    assert Pipeline(bm25=BM25Stage(), a=frozen, f=FeaturesStage(("bm25", "a"))).answer == "f"
    with pytest.raises(UserError, match=r"stage b: of f: .* trained-encoder has no query to train on"):
        Pipeline(bm25=BM25Stage(), a=trained, f=fused, b=TrainedEncoderStage("f"))


@pytest.mark.parametrize("text", MISTAKES)
def test_what_is_no_pipeline_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UserError, match=MISTAKES[text]) as refused:
        read_pipeline(tmp_path / "p.toml")
    assert "\n" not in str(refused.value)
    assert "p.toml" in str(refused.value)


def test_a_pipeline_that_is_not_fitted_says_how_to_fit_it():
    with pytest.raises(UserError, match=r"is not fitted; rerank.fit\(collection, pipeline\) fits it"):
        Pipeline(bm25=BM25Stage()).search("a query")


@pytest.mark.parametrize("stages", [[BM25Stage()], {"a": "bm25"}, {"a": BM25Stage}, {1: BM25Stage()}])
def test_what_is_no_table_of_stages_is_a_type_error(stages):
    with pytest.raises(TypeError, match=r"^stages: expected {name: stage}, got "):
        Pipeline(stages)


def test_operators_give_the_pipeline_that_names_its_stages():
    written = Pipeline(
        bm25=BM25Stage(k1=1.2, b=0.75),
        dense=DenseStage("encoder"),
        feedback=FeedbackStage("dense", "encoder"),
        fusion=FusionStage(("bm25", "dense", "feedback")),
        **{"cross-encoder": CrossEncoderStage("fusion", "bert-base-uncased", depth=20)},
    )
    bm25, dense = BM25Stage(k1=1.2, b=0.75), DenseStage("encoder")
    composed = bm25 + dense + (dense >> FeedbackStage(encoder="encoder")) >> CrossEncoderStage(
        encoder="bert-base-uncased", depth=20
    )
    assert Pipeline(composed).to_toml() == written.to_toml()
    assert (Pipeline(bm25 + dense) >> CrossEncoderStage()).to_toml() == Pipeline(
        (bm25 + dense) >> CrossEncoderStage()
    ).to_toml()
    assert list((Pipeline(bm25=bm25) + DenseStage("other")).stages) == ["bm25", "dense", "fusion"]
    assert list(dense + DenseStage("other")) == ["dense", "dense-2", "fusion"]
    fused = bm25 + dense
    both = Pipeline(fused + (fused >> CrossEncoderStage()))  # the fusion stays, as the cross-encoder re-ranks it
    assert both.stages["fusion"].of == ("bm25", "dense")
    assert both.stages["fusion-2"].of == ("fusion", "cross-encoder")


@pytest.mark.parametrize(
    ("compose", "expected"),
    [
        (lambda: BM25Stage() >> DenseStage(), ">> dense: expected a stage that re-ranks the documents of another one"),
        (lambda: BM25Stage() >> CrossEncoderStage("bm25"), ">> cross-encoder: already has of = 'bm25'; leave it out"),
        (lambda: CrossEncoderStage() >> FeedbackStage(), "cross-encoder: has no stage below it; put one before it"),
        (lambda: BM25Stage() + 3, "3: is no stage; expected settings such as BM25Stage()"),
        (lambda: BM25Stage() + DenseStage, "DenseStage: is no stage; expected settings such as BM25Stage()"),
        (lambda: BM25Stage() >> CrossEncoderStage, ">> CrossEncoderStage: expected a stage that re-ranks"),
        (lambda: Pipeline(bm25=BM25Stage(), answer=CrossEncoderStage()), "stage answer: of: is missing; expected"),
    ],
)
def test_what_cannot_be_composed_is_refused_in_one_line(compose, expected):
    with pytest.raises(UserError) as error:
        compose()
    assert expected in str(error.value)
    assert "\n" not in str(error.value)
