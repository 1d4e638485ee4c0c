"""Scores on the device against those of the CPU in float32, document by document."""

from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from scripts.benchmarks.workload import Workload, on_device
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import (
    SCORE_BOUNDS,
    cpu_scores,
    encoder_folder,
    flat_scores,
    of_spread,
    open_documents,
    opened,
    precisions,
)
from scripts.gpu_check.sizes import Setting


def check(setting: Setting) -> list[Row]:
    """A row for each encoder and each precision."""
    rows = []
    for name, (lists, documents) in setting.sizes.encoders.items():
        with encoder_folder(name) as folder:
            workload = open_documents(folder, lists, documents, setting.sizes)
        expected = cpu_scores(workload)
        for precision in precisions(setting):
            found = device_scores(setting, precision, workload)
            what = f"scores, {name}, {precision}: difference / spread"
            rows.append(at_most(what, of_spread(found, expected), SCORE_BOUNDS[precision]))
    return rows


def device_scores(setting: Setting, precision: str, workload: Workload):
    """(documents,) scores as `rerank score` computes them."""
    with opened(setting, precision) as accelerator:
        model = on_device(workload.model, accelerator)
        budget = open_budget("auto", accelerator.device)
        run = score_candidates(model, workload.builder, workload.candidates, accelerator, budget)
    return flat_scores(run, workload.candidates)
