"""The exported graphs of a benchmark's encoder: ONNX Runtime and OpenVINO, in float32 and int8."""

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from accelerate import Accelerator

from rerank.config import TrainingSettings
from rerank.models.export.folder import open_export, write_export
from rerank.models.export.formats import WRITERS, check_packages
from rerank.training.device import open_accelerator
from rerank.utils.errors import UserError
from scripts.benchmarks.report import Encoder, Out, Rounds, publish
from scripts.benchmarks.scoring import EXACT, OURS, QUERIES, Documents, in_float32, our_scores, product_type
from scripts.benchmarks.timing import Work, interleaved, ratio
from scripts.benchmarks.workload import Workload, make_workload, on_device, open_encoder

COLUMNS = {"what": "", "documents/CPU s": ",.2f", "× rerank": ".2f"}
NOTE = "Seconds are those of all threads on processors. Values are medians over rounds."


def exports(*, encoder: Encoder = "minilm", rounds: Rounds = 3, documents: Documents = 64, out: Out = None) -> None:
    """Documents scored per CPU second: rerank and the graphs that `rerank export` writes.

    Parameters
    ----------
    documents
        Documents to score per round, of one passage each.
    """
    accelerator = open_accelerator(TrainingSettings(device="cpu"))
    with open_encoder(encoder, own_head=True) as folder:
        workload = make_workload(folder, QUERIES, documents // QUERIES, one_passage=True)
        works, notes = _exported_works(workload, accelerator)
    model = on_device(workload.model, accelerator)
    ours: dict[str, Work] = {OURS: lambda: our_scores(model, workload, accelerator)}
    if product_type(accelerator) == torch.bfloat16:
        ours[EXACT] = in_float32(model, ours[OURS])
    works = ours | works
    for work in works.values():
        work()
    seconds = interleaved(works, rounds, accelerator.device, cpu_seconds=True)
    total = sum(len(c.doc_ids) for c in workload.candidates)
    rows = [
        {
            "what": what,
            "documents/CPU s": total / median(taken),
            "× rerank": ratio(seconds[OURS], taken),
            "seconds": taken,
        }
        for what, taken in seconds.items()
    ]
    settings = {"encoder": encoder, "rounds": rounds, "documents": documents}
    publish("Exported graphs", rows, COLUMNS, settings, accelerator.device, [*notes, NOTE], out)


def _exported_works(workload: Workload, accelerator: Accelerator) -> tuple[dict[str, Work], list[str]]:
    """The scoring of the workload by each graph that can be made, and a line for each format that cannot be made."""
    works: dict[str, Work] = {}
    notes: list[str] = []
    for form in WRITERS:
        try:
            check_packages(form, True)
            for precision in ("float32", "int8"):
                works[f"exported, {form}, {precision}"] = _work(workload, accelerator, form, precision == "int8")
        except UserError as error:  # a package is missing, or the encoder cannot be exported
            notes.append(str(error))
    return works, notes


def _work(workload: Workload, accelerator: Accelerator, form: str, int8: bool) -> Work:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "export"
        model = workload.model.eval()
        write_export(folder, str(workload.folder), model, form, int8)
        exported = open_export(str(folder), "")  # which reads the whole graph
    return lambda: our_scores(exported, workload, accelerator)
