"""A .zip in the layout of BEIR, as BEIR publishes its collections: extracted once, into the user's cache."""

import zipfile
import zlib
from pathlib import Path

from rerank.data.formats.beir import CORPUS, QUERIES, BeirFolder
from rerank.data.sources import register
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.locks import make_once
from rerank.utils.progress import log
from rerank.utils.user_cache import user_cache


@register
class BeirZip(BeirFolder):
    """A collection in a .zip; see `Source` for its attributes.

    Opening extracts it, unless the cache has a copy of the same content. Raises UserError for a file that is damaged,
    encrypted or no .zip, has no corpus.jsonl or several, or is too large for the disk.
    """

    def __init__(self, source: str) -> None:
        super().__init__(source, folder=str(extract(Path(source))))

    @classmethod
    def matches(cls, source: str) -> bool:
        return source.lower().endswith(".zip") and not Path(source).is_dir()

    @property
    def name(self) -> str:
        return Path(self.source).resolve().stem


def extract(archive: Path) -> Path:
    """The folder of the collection in a .zip, below $XDG_CACHE_HOME (or ~/.cache)/rerank/collections/<name>-<hash>.

    The hash is of the names, sizes and checksums in the .zip.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            content = sorted((member.filename, member.file_size, member.CRC) for member in opened.infolist())
            folder = user_cache("collections") / f"{archive.resolve().stem}-{short_hash(*content)}"
            make_once(folder, "collection", lambda: _extract(archive, opened, folder))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive}: damaged, or no .zip file ({error}); get it again") from error
    except RuntimeError as error:  # encrypted, or compressed in a way that Python cannot read
        raise UserError(f"{archive}: cannot be extracted: {error}; extract it yourself, and give the folder") from error
    except OSError as error:
        raise UserError(f"collection {archive}: cannot be read: {error.strerror}") from error
    return _collection_in(folder, archive)


def _extract(archive: Path, opened: zipfile.ZipFile, folder: Path) -> None:
    log.info(f"{archive}: extracting into {folder}")
    with atomic_write(folder) as tmp:
        opened.extractall(tmp)
        _collection_in(tmp, archive)


def _collection_in(folder: Path, archive: Path) -> Path:
    """The folder with corpus.jsonl: this one, or one in it. Raises UserError if there is none, or several."""
    found = [*folder.glob(CORPUS), *sorted(folder.glob(f"*/{CORPUS}"))]
    if len(found) == 1:
        return found[0].parent
    held = " and ".join(str(corpus.relative_to(folder)) for corpus in found) or f"no {CORPUS}"
    raise UserError(
        f"{archive}: holds {held}; expected one collection: {CORPUS}, {QUERIES} and qrels/test.tsv, at the top or in "
        "one folder"
    )
