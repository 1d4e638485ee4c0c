"""Re-ranking from Python: with a collection, and with that of the checkpoint."""

import json
from pathlib import Path

import pytest

from rerank.config import CollectionSettings, Config
from rerank.experiments.score import rescore
from rerank.utils.errors import UserError

RUN = Path("runs/towns/bm25.run")
CHECKPOINT = Path("runs/towns/smoothi/fold1/checkpoint")
RECORDED = Config(collection=CollectionSettings(source=""))
"""Settings without a collection: that of the checkpoint."""


def test_a_checkpoint_that_does_not_know_its_collection_and_a_collection_that_is_gone(there):
    Path("towns").rename("moved")
    with pytest.raises(UserError, match=r"the collection that it was trained on cannot be opened: .*--collection"):
        rescore(RECORDED, str(CHECKPOINT), RUN, Path("out.run"))
    settings = json.loads((CHECKPOINT / "config.json").read_text())
    assert settings["rerank"].pop("collection") == "towns"
    (CHECKPOINT / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"does not record the collection .* name one with --collection"):
        rescore(RECORDED, str(CHECKPOINT), RUN, Path("out.run"))
