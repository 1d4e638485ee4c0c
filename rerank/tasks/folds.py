"""The folds of a text collection: its published split, its official folds, or its judged queries cut into folds."""

from collections.abc import Sequence

from rerank.config import CollectionSettings, Config, flag_name
from rerank.data.collections import Collection, queries_to_train
from rerank.data.folds import FINAL, SPLIT, draw_queries, final_fold, make_folds, read_folds, write_folds
from rerank.data.trec import write_qrels
from rerank.data.types import Fold
from rerank.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log


def check_fold(name: str, names: Sequence[str]) -> None:
    """Raises UserError if `name` is none of the names of the folds, and neither "all" nor "final"."""
    if name not in (*names, "all", FINAL):
        raise UserError(f"fold {name}: no such fold; expected {', '.join(names)}, all or {FINAL}")


def folds_of(collection: Collection, count: int) -> list[Fold]:
    """The folds; the judged queries of a collection that has none of its own are cut into `count`."""
    if collection.folds:
        return list(collection.folds)
    return make_folds([query_id for query_id in collection.queries if query_id in collection.qrels], count)


def fold_names_of(collection: Collection, count: int) -> list[str]:
    """The names of the folds of `folds_of`, also of a collection without judgments."""
    return [fold.name for fold in collection.folds] or [str(number + 1) for number in range(count)]


def drawn_folds(config: Config, collection: Collection) -> list[Fold]:
    """The folds, with as many training and validation queries as the settings leave (see `draw_queries`)."""
    return [_drawn(config, fold) for fold in folds_of(collection, config.collection.folds)]


def drawn_final_fold(config: Config, collection: Collection) -> Fold:
    """The fold of the model to deploy, of all judged queries, of which some validate."""
    judged = [query_id for query_id in collection.queries if collection.qrels.get(query_id)]
    return _drawn(config, final_fold(judged, config.training.seed))


def _drawn(config: Config, fold: Fold) -> Fold:
    training = config.training
    return draw_queries(fold, config.collection.train_queries, training.validate_queries, training.seed)


def drawing_flags(config: Config) -> list[str]:
    """`--collection.train-queries` and `--training.validate-queries` with their numbers, if they leave queries out."""
    counts = {
        flag_name("collection", "train_queries"): config.collection.train_queries,
        flag_name("training", "validate_queries"): config.training.validate_queries,
    }
    return [f"{flag} {count}" for flag, count in counts.items() if count != "all"]


def queries_in_use(config: Config, collection: Collection, fold_name: str = "all") -> dict[str, str]:
    """The queries of `queries_to_train` that a fold has, whichever it is, or the final model; query_id to text.

    They are all of them, unless `--collection.train-queries` or `--training.validate-queries` leaves some out.
    """
    queries = queries_to_train(collection)
    if not collection.qrels or not drawing_flags(config):
        return queries
    folds = [drawn_final_fold(config, collection)] if fold_name == FINAL else drawn_folds(config, collection)
    used = {query_id for fold in folds for part in (fold.train, fold.valid, fold.test) for query_id in part}
    return {query_id: text for query_id, text in queries.items() if query_id in used}


def describe_folds(config: Config, collection: Collection) -> list[str]:
    """A line about the published split, if there is one, and a line for everything that is not used."""
    lines, source, names = list(collection.notes), collection.source, [fold.name for fold in collection.folds]
    if collection.qrels and (drawing := drawing_flags(config)):
        lines.append(f"{', '.join(drawing)}: drawn from each fold by seed {config.training.seed}")
    unused = len(collection.queries.keys() - collection.qrels.keys()) if names == [SPLIT] else 0
    if unused and not config.collection.queries:
        lines.append(f"{source}: {unused} of {len(collection.queries)} queries are in no split: not used")
    if names and config.collection.folds != CollectionSettings().folds:
        lines.append(
            f"--collection.folds {config.collection.folds}: not used, as {source} has folds of its own: "
            f"{', '.join(names)}"
        )
    return lines


def expect_same_folds(folder: CollectionFolder, collection: Collection, count: int) -> None:
    """Raises UserError if experiments with folds other than those of `folds_of` are in the collection's folder."""
    if not (folder.folds.exists() and folder.has_results):
        return
    before, now = read_folds(folder.folds), folds_of(collection, count)
    if before != now:
        differ = "; now ".join(", ".join(fold.name for fold in folds) for folds in (before, now))
        raise UserError(
            f"{folder.folds}: the experiments in this folder have other folds ({differ}); take another "
            "--output.folder, or go back to the same judgments and --collection.folds"
        )


def write_references(folder: CollectionFolder, collection: Collection, count: int) -> None:
    """Writes the judgments and the folds, which evaluation reads; nothing for a collection without judgments.

    Raises UserError if experiments with other folds are in the same folder.
    """
    if not collection.qrels:
        log.info(f"{collection.source}: has no judgments, so neither {folder.qrels.name} nor folds are made")
        return
    with locked(folder.path, "folds"):
        expect_same_folds(folder, collection, count)
        write_qrels(folder.qrels, collection.qrels)
        write_folds(folder.folds, folds_of(collection, count))
