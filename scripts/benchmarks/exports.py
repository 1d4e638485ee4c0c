"""The exported graphs of a benchmark's encoder: ONNX Runtime and OpenVINO, in float32 and int8."""

from pathlib import Path
from tempfile import TemporaryDirectory

from accelerate import Accelerator

from rerank.models.export.folder import FORMATS, open_export, write_export
from rerank.models.memory import open_budget
from rerank.models.scoring import pairs_of, score_candidates
from rerank.utils.errors import UserError
from scripts.benchmarks.timing import Work
from scripts.benchmarks.workload import Workload

CALIBRATION = 16
"""Documents that calibrate int8: speed does not depend on them."""


def exported_works(workload: Workload, accelerator: Accelerator) -> tuple[dict[str, Work], list[str]]:
    """The scoring of the workload by each graph that can be made, and a line for each format that cannot be made.

    On a GPU there are none: the graphs run on CPUs.
    """
    works: dict[str, Work] = {}
    notes: list[str] = []
    if accelerator.device.type != "cpu":
        return works, notes
    for form, functions in FORMATS.items():
        try:
            functions.check_packages(True)
        except UserError as error:
            notes.append(str(error))
            continue
        for precision in ("float32", "int8"):
            works[f"exported, {form}, {precision}"] = _work(workload, accelerator, form, precision == "int8")
    return works, notes


def _work(workload: Workload, accelerator: Accelerator, form: str, int8: bool) -> Work:
    calibration = [workload.builder(pairs_of(workload.candidates)[:CALIBRATION])] if int8 else None
    sizes = workload.builder.max_length, 800
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "export"
        model = workload.model.eval()
        write_export(folder, str(workload.folder), model, workload.tokenizer, sizes, form, calibration, {})
        exported, _, _ = open_export(str(folder), "")  # which reads the whole graph
    return lambda: score_candidates(
        exported, workload.builder, workload.candidates, accelerator, open_budget("auto", accelerator.device)
    )
