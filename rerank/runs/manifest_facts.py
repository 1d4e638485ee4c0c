"""The facts that a manifest has, by the version that wrote it: which are missing or changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rerank.runs.manifest import HASH, read_manifest

NUMBER, NOTHING = (int, float), type(None)
ABOUT: dict[str, tuple[type, ...]] = {
    "config": (dict,),
    "versions": (dict,),
    "commit": (str, NOTHING),
    "machine": (dict,),
}
OF_FOLD: dict[str, tuple[type, ...]] = {
    **ABOUT,
    "fold": (dict,),
    "epochs": (int,),
    "best_epoch": (int,),
    "best_valid": (*NUMBER, NOTHING),
    "qrels": (dict,),
    "outcome": (dict,),
    "device": (str,),
    "device_name": (str,),
    "precision": (str,),
    "processes": (int,),
    "seconds": NUMBER,
    "peak_memory": (int,),
}
OF_TEXT: dict[str, tuple[type, ...]] = {
    "texts": (dict,),
    "documents": (dict,),
    "first_stage": (dict,),
    "java": (dict, NOTHING),
    "max_tokens_per_forward": (int,),
    "passages": (str,),
    "attention_dropout": (str,),
    "pretraining": (dict, NOTHING),
}
OF_FEATURES: dict[str, tuple[type, ...]] = {"features": (dict,), "parameters": (int,)}
OF_ADAPTER: dict[str, tuple[type, ...]] = {
    "adapter": (dict,),
    "documents": (dict,),
    "first_stage": (dict,),
    "java": (dict, NOTHING),
}
OF_PRETRAINING: dict[str, tuple[type, ...]] = {**ABOUT, "pretraining": (dict,), "history": (list,)}
"""Facts that every version writes since 0.1.0, and their types in JSON."""
SINCE_0_2_0: dict[str, tuple[type, ...]] = {"format": (int,), "files": (dict,), HASH: (str,)}

SINCE_FORMAT_3: dict[str, tuple[type, ...]] = {"tf32": (bool,)}
OF_TEXT_SINCE_FORMAT_3: dict[str, tuple[type, ...]] = {"attention": (str,), "compiled": (bool,)}


def missing_facts(facts: Mapping[str, Any], of_fold: bool = True) -> Iterator[str]:
    """A line on the facts that are missing in the manifest of a fold or a pre-training, and one for each wrong type."""
    others = {"features": OF_FEATURES, "adapter": OF_ADAPTER}
    of_model = next((expected for name, expected in others.items() if name in facts), OF_TEXT)
    of_text = of_model is OF_TEXT
    expected = OF_FOLD | of_model if of_fold else dict(OF_PRETRAINING)
    if not unrecorded_facts(facts):
        expected |= SINCE_0_2_0
    if of_fold and isinstance(facts.get("format"), int) and facts["format"] >= 3:
        expected |= SINCE_FORMAT_3 | (OF_TEXT_SINCE_FORMAT_3 if of_text else {})
    if missing := [name for name in expected if name not in facts]:
        yield f"expected {', '.join(missing)}; found none"
    for name, types in expected.items():
        if name in facts and (not isinstance(facts[name], types) or isinstance(facts[name], bool) != (bool in types)):
            yield f"{name}: not what a manifest has there: {str(facts[name])[:40]}"


def unrecorded_facts(facts: Mapping[str, Any]) -> list[str]:
    """What the version that wrote the manifest could not record: it knew none of the later facts."""
    is_older = "versions" in facts and not any(name in facts for name in SINCE_0_2_0)
    return ["sizes and hashes of the checkpoint, the log and the manifest"] if is_older else []


def changed_facts(manifest: Path) -> Iterator[str]:
    """A line if the manifest was changed since it was written."""
    try:
        read_manifest(manifest)
    except ValueError as error:
        yield str(error)
