"""The folds of a text collection: its published split, its official folds, or its judged queries cut into folds."""

from rerank.config import CollectionSettings, Config, flag_name
from rerank.data.collections import Collection, queries_to_train
from rerank.data.folds import FINAL, draw_queries, make_folds, read_folds, write_folds
from rerank.data.splits import SPLIT, final_fold
from rerank.data.trec import write_qrels
from rerank.data.types import Fold
from rerank.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log


def folds_of(collection: Collection, count: int) -> list[Fold]:
    """The folds; the judged queries of a collection that has none of its own are cut into `count`."""
    if collection.folds:
        return list(collection.folds)
    return make_folds([query_id for query_id in collection.queries if query_id in collection.qrels], count)


def drawn_folds(config: Config, collection: Collection) -> list[Fold]:
    """The folds, with as many training and validation queries as the settings leave (see `draw_queries`)."""
    return [_drawn(config, fold) for fold in folds_of(collection, config.collection.folds)]


def drawn_final_fold(config: Config, collection: Collection, validated: bool) -> Fold:
    """The fold of the model to deploy, of all judged queries, of which some validate if it is `validated`."""
    judged = [query_id for query_id in collection.queries if collection.qrels.get(query_id)]
    return _drawn(config, final_fold(judged, config.training.seed, validated))


def draws_queries(config: Config) -> bool:
    """Whether `--collection.train-queries` or `--training.validate-queries` may leave queries out."""
    return any(count != "all" for count in _counts(config).values())


def queries_in_use(config: Config, collection: Collection, fold_name: str = "all") -> dict[str, str]:
    """The queries of `queries_to_train` that a fold has, whichever it is, or the final model; query_id to text.

    They are all of them, unless `--collection.train-queries` or `--training.validate-queries` leaves some out.
    """
    queries = queries_to_train(collection)
    if not collection.qrels or not draws_queries(config):
        return queries
    if fold_name == FINAL:
        folds = [drawn_final_fold(config, collection, validated) for validated in (True, False)]
    else:
        folds = drawn_folds(config, collection)
    used = {query_id for fold in folds for part in (fold.train, fold.valid, fold.test) for query_id in part}
    return {query_id: text for query_id, text in queries.items() if query_id in used}


def _counts(config: Config) -> dict[str, int | str]:
    return {
        flag_name("collection", "train_queries"): config.collection.train_queries,
        flag_name("training", "validate_queries"): config.training.validate_queries,
    }


def _drawn(config: Config, fold: Fold) -> Fold:
    train, valid = _counts(config).values()
    return draw_queries(fold, train, valid, config.training.seed)


def fold_names_of(collection: Collection, count: int) -> list[str]:
    """The names of the folds of `folds_of`."""
    return [fold.name for fold in collection.folds] or [str(number + 1) for number in range(count)]


def describe_folds(config: Config, collection: Collection) -> list[str]:
    """A line about the published split, if there is one, and a line for everything that is not used."""
    folds, lines = config.collection.folds, list(collection.notes)
    drawing = [f"{flag} {count}" for flag, count in _counts(config).items() if count != "all"]
    if drawing and collection.qrels:
        lines.append(f"{', '.join(drawing)}: drawn from each fold by seed {config.training.seed}")
    if fold_names_of(collection, folds) == [SPLIT]:
        unused = len(collection.queries.keys() - collection.qrels.keys())
        if unused and not config.collection.queries:
            lines.append(
                f"{collection.source}: {unused} of {len(collection.queries)} queries are in no split: not used"
            )
    if folds != CollectionSettings().folds and collection.folds:
        names = ", ".join(fold_names_of(collection, folds))
        lines.append(f"--collection.folds {folds}: not used, as {collection.source} has folds of its own: {names}")
    return lines


def expect_same_folds(folder: CollectionFolder, collection: Collection, count: int) -> None:
    """Raises UserError if experiments with folds other than those of `folds_of` are in the collection's folder."""
    if not (folder.folds.exists() and folder.has_results):
        return
    before, now = read_folds(folder.folds), folds_of(collection, count)
    if before == now:
        return
    names, names_now = ([fold.name for fold in folds] for folds in (before, now))
    if SPLIT in names + names_now:
        differ = f"{', '.join(names)}; now {', '.join(names_now)}"
        advice = (
            "take another --output.folder, or go back to the same judgments; cross-validation on the test queries: "
            "without qrels/train.tsv, or an id such as beir/scifact/test"
        )
    else:
        differ, advice = (
            f"{len(names)}, now {len(names_now)}",
            "keep --collection.folds, or take another --output.folder",
        )
    raise UserError(f"{folder.folds}: the experiments in this folder have other folds ({differ}); {advice}")


def write_references(
    folder: CollectionFolder, collection: Collection, count: int, *, keeps_folds: bool = False
) -> None:
    """Writes the judgments and the folds, which evaluation reads; nothing for a collection without judgments.

    With `keeps_folds`, folds that are there stay, since a training may be at work with them. Raises UserError without
    it, if experiments with other folds are in the same folder.
    """
    if not collection.qrels:
        log.info(f"{collection.source}: has no judgments, so neither {folder.qrels.name} nor folds are made")
        return
    with locked(folder.path, "folds"):
        folds = folds_of(collection, count)
        if not keeps_folds:
            expect_same_folds(folder, collection, count)
        write_qrels(folder.qrels, collection.qrels)
        if not (keeps_folds and folder.folds.exists()):
            write_folds(folder.folds, folds)
        elif read_folds(folder.folds) != folds:
            log.info(f"{folder.folds}: has other folds than --collection.folds {count} would give; they are kept")
