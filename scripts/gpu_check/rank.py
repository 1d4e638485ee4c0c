"""One of the processes that torchrun starts for `processes`: trains and scores, and the first writes the scores.

torchrun --nproc_per_node 2 -m scripts.gpu_check.rank DEVICE SIZES ENCODER FOLDER
"""

import json
import sys
from pathlib import Path

import torch

from rerank.models.memory import TokenBudget
from rerank.models.scoring import score_candidates
from rerank.training.device import open_accelerator
from scripts.benchmarks.workload import on_device
from scripts.gpu_check.lists_training import TOKENS, open_lists, train_lists
from scripts.gpu_check.setting import flat_scores
from scripts.gpu_check.sizes import FULL, SMALL, Setting

EPOCHS = 2
RESULT = "scores.json"


def main(device: str, sizes: str, encoder: str, folder: str) -> None:
    """Writes `FOLDER/scores.json`: the number of processes, and the scores after the training."""
    setting = Setting(device, FULL if sizes == "full" else SMALL)
    accelerator = open_accelerator("auto", device)
    workload = open_lists(Path(encoder), setting)
    model = on_device(workload.model, accelerator)
    train_lists(workload, Path(folder, "training"), EPOCHS, accelerator)
    run = score_candidates(model, workload.builder, workload.candidates, accelerator, TokenBudget(TOKENS))
    if accelerator.is_main_process:
        scores = flat_scores(run, workload.candidates).tolist()
        result = {"processes": accelerator.num_processes, "scores": scores}
        Path(folder, RESULT).write_text(json.dumps(result), encoding="utf-8")
    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
