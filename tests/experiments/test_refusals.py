"""What can be refused from the settings alone is refused before anything is retrieved, indexed or trained."""

from pathlib import Path

import pytest

from rerank.config import Config
from rerank.experiments.rescore import rescore
from rerank.utils.errors import UserError
from tests.support.small_collection import command, failed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fold", "9"], "fold 9: no such fold; expected 1, 2, 3, 4, 5, all or final"),
        (["--fold", "4", "--collection.folds", "3"], "fold 4: no such fold; expected 1, 2, 3, all or final"),
        (["--loss", "smothi"], "--loss smothi: no such loss"),
        (["--training.measure", "ndcg_cut20"], "ndcg_cut20"),
        (["--first-stage.run", "nowhere.run"], "--first-stage.run nowhere.run: no such file"),
        (["--encoder.pooling", "men"], "men"),
        (["--pretraining.steps", "2", "--pretraining.loss", "softmx"], "--pretraining.loss softmx: no such loss"),
    ],
)
def test_nothing_is_retrieved_for_settings_that_cannot_work(here, capsys, words, expected):
    assert expected in failed(capsys, *command(*words, "--output.folder", "new"))
    assert not Path("new").exists()


def test_a_run_to_score_that_is_missing_is_refused_before_the_model_is_opened(here):
    with pytest.raises(UserError, match=r"nowhere\.run: no such file"):
        rescore(Config(), "no-model", Path("nowhere.run"), Path("out.run"), "towns")
