"""The check of a finished pre-training: its manifest and its files."""

from rerank.runs.layout import PretrainingFolder
from rerank.runs.manifest import read_manifest
from rerank.runs.manifest_facts import changed_facts, missing_facts, unrecorded_facts
from rerank.utils.errors import UserError
from rerank.utils.integrity import as_record, changes


def check_pretraining(folder: PretrainingFolder) -> tuple[list[str], list[str], list[str]]:
    """The errors, no files that are gone, and the facts that an older version did not record."""
    name = folder.manifest.name
    try:
        facts = read_manifest(folder.manifest, checked=False)
        errors = [f"{name}: {what}" for what in (*missing_facts(facts, of_fold=False), *changed_facts(folder.manifest))]
        errors += changes(folder.path, as_record(facts["files"])) if "files" in facts else []
    except OSError as error:
        return [f"{name}: cannot be read: {error.strerror}"], [], []
    except ValueError as error:
        return [f"{name}: expected the facts of a pre-training in JSON, got {error}"], [], []
    return errors, [], unrecorded_facts(facts)


def expect_undamaged(folder: PretrainingFolder) -> None:
    """Raises UserError if a finished pre-training is not what was written."""
    if errors := check_pretraining(folder)[0]:
        raise UserError(
            f"{folder.path}: the pre-training is damaged: {'; '.join(errors)}; remove the folder to pre-train again"
        )
