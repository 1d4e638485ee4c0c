"""Budgets: chooses the stage that answers among fitted stages, without fitting anything again."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rerank.experiments.runs.layout import MANIFEST
from rerank.experiments.runs.manifest import write_manifest
from rerank.pipelines.evidence import Trial, evidence_of, total_ms
from rerank.pipelines.folder import PIPELINE
from rerank.pipelines.graph import read_pipeline
from rerank.pipelines.record import EVIDENCE, EvidenceRecord, read_evidence
from rerank.pipelines.selection import choose_all, costly_stages
from rerank.pipelines.stages.base import Stage
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.integrity import record_of


def within(budget: float | None, stages: Mapping[str, Stage], ms: Mapping[str, float]) -> list[str]:
    """The stages that answer within the budget; raises UserError if none does."""
    total = {name: total_ms(stages, name, ms) for name in stages}
    allowed = [name for name in stages if budget is None or total[name] <= budget]
    if not allowed:
        fastest = min(total, key=total.__getitem__)
        raise UserError(
            f"--budget {budget:g}ms: no stage answers in time; the fastest, {fastest}, takes {total[fastest]:.1f} ms"
        )
    return allowed


def choose_again(folder: Path, stages: Mapping[str, Stage], budget: float | None) -> str | None:
    """Lets a stage of a fitted pipeline answer, by its evidence and this budget; returns its name.

    `stages` are all that were tried. The folder has those up to the one that answered after the fit; None if it lacks
    the stage that is chosen. Raises UserError if no stage answers in time.
    """
    evidence = read_evidence(folder)
    if evidence is None:
        return None
    if evidence["budget"] == budget:
        return evidence["answer"]
    tried = {row["name"]: stages[row["name"]] for row in evidence["stages"]}
    ms = {row["name"]: row["own_ms"] for row in evidence["stages"] if row["own_ms"] is not None}
    values = {name: own for name, own in evidence["values"].items() if name != "nested" and own}
    timed = {name: settings for name, settings in tried.items() if name in ms}
    allowed, costly = within(budget, timed, ms), costly_stages(tried)
    selected = choose_all(values, evidence["inner"], evidence["tested"], allowed, costly)
    if selected.answer not in read_pipeline(folder / PIPELINE):
        return None
    chosen = evidence_of(tried, selected, _trial_of(evidence, budget), ms)
    if "older_documents" in evidence:
        chosen["older_documents"] = evidence["older_documents"]
    _rewrite(folder, chosen)
    return selected.answer


def _trial_of(evidence: EvidenceRecord, budget: float | None) -> Trial:
    """The trial that gave an evidence, with another budget."""
    return Trial(
        measure=evidence["measure"],
        judged=evidence["judged"],
        parts=evidence["parts"],
        drawn=evidence["drawn"],
        far=evidence["far_queries"],
        taught={row["name"]: row["trained_on"] for row in evidence["stages"]},
        budget=budget,
    )


def _rewrite(folder: Path, evidence: EvidenceRecord) -> None:
    """Replaces a pipeline's evidence, and the answer in its manifest; the other files stay as they are."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest["pipeline"]["answer"] = evidence["answer"]
    with atomic_write(folder) as tmp:
        shutil.copytree(folder, tmp, copy_function=_link)
        for name in (EVIDENCE, MANIFEST):
            (tmp / name).unlink()
        (tmp / EVIDENCE).write_text(json.dumps(evidence, indent=1, ensure_ascii=False), encoding="utf-8")
        manifest["files"] |= record_of(tmp, [tmp / EVIDENCE])
        write_manifest(tmp / MANIFEST, {"pipeline": manifest["pipeline"], "files": manifest["files"]})


def _link(source: str, target: str) -> None:
    """Links a file, which takes no space, or copies it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
