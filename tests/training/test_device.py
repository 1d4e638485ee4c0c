"""The facts of a device that a manifest records."""

import json

import pytest
import torch

from rerank.cli.main import main
from rerank.training.device import arithmetic
from tests.support.small_collection import command


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_threads_blas_and_instructions_are_recorded(three_threads):
    facts = arithmetic()
    assert facts["threads"] == 3
    assert facts["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert facts["blas"] is None or f"BLAS_INFO={facts['blas']}" in torch.__config__.show()
    assert json.loads(json.dumps(facts)) == facts


def test_a_manifest_has_them(here):
    main(command("--fold", "1", "--name", "one", "--first-stage.threads", "2"))
    facts = json.loads((here / "runs" / "towns" / "one" / "fold1" / "manifest.json").read_text())
    assert facts["arithmetic"] == arithmetic()
    assert facts["lucene_threads"] == 2
