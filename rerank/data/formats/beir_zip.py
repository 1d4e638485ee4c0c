"""A .zip in the layout of BEIR, as BEIR publishes its collections: extracted once, into the user's cache."""

import contextlib
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rerank.data.formats.beir import CORPUS, QUERIES, BeirFolder
from rerank.data.sources import register
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress
from rerank.utils.user_cache import user_cache

BLOCK = 16 * 2**20
LAYOUT = f"{CORPUS}, {QUERIES} and qrels/test.tsv, at the top or in one folder"


@register
class BeirZip(BeirFolder):
    """A collection in a .zip; see `Collection` for its attributes.

    Opening extracts it, unless the cache has a copy of the same content. Raises UserError for a file that is damaged,
    encrypted or no .zip, has no corpus.jsonl or several, or is too large for the disk.
    """

    def __init__(self, source: str) -> None:
        super().__init__(source, folder=str(extract(Path(source))))

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether the source ends in .zip and is no folder."""
        return source.lower().endswith(".zip") and not Path(source).is_dir()

    @property
    def name(self) -> str:
        """The file's name without .zip."""
        return Path(self.source).resolve().stem


def extract(archive: Path) -> Path:
    """The folder with the files of a .zip: $XDG_CACHE_HOME (or ~/.cache)/rerank/collections/<name>-<hash>.

    The hash is of the names, sizes and checksums in the .zip. Only the files of BEIR's layout are extracted, so that no
    name in a .zip can lead out of the folder.
    """
    with _error_in_one_line(archive), zipfile.ZipFile(archive) as opened:
        members = _members(archive, opened)
        content = sorted((name, member.file_size, member.CRC) for name, member in members.items())
        folder = user_cache("collections") / f"{archive.resolve().stem}-{short_hash(*content)}"
        make_once(folder, "collection", lambda: _extract(archive, opened, members, folder))
        return folder


def _extract(archive: Path, opened: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], folder: Path) -> None:
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        size = sum(member.file_size for member in members.values())
        free = shutil.disk_usage(tmp).free
        if size > free:
            raise UserError(
                f"{archive}: its files take {size / 2**30:.1f} GiB, and {folder.parent} has {free / 2**30:.1f} GiB "
                "free; make space, or set XDG_CACHE_HOME to a folder on another disk"
            )
        for name, member in members.items():
            (tmp / name).parent.mkdir(exist_ok=True)
            with opened.open(member) as packed, (tmp / name).open("wb") as file:
                blocks = iter(lambda packed=packed: packed.read(BLOCK), b"")  # type: ignore[misc]
                count = -(-member.file_size // BLOCK)
                for block in progress(blocks, count, f"extracting {name}", show=count > 1):
                    file.write(block)
    log.info(f"{archive}: extracted into {folder}")


def _members(archive: Path, opened: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files of BEIR's layout by their names in it: they are at the top, or in one folder."""
    names = {PurePosixPath(info.filename): info for info in opened.infolist() if not info.is_dir()}
    tops = [path.parent for path in names if path.name == CORPUS and len(path.parts) <= 2 and not path.is_absolute()]
    if len(tops) != 1:
        found = " and ".join(str(top / CORPUS) for top in tops) or f"no {CORPUS}"
        raise UserError(f"{archive}: holds {found}; expected one collection: {LAYOUT}")
    members = {}
    for path, info in names.items():
        if path.parts[: len(tops[0].parts)] != tops[0].parts:
            continue
        match path.relative_to(tops[0]).parts:
            case (str(name),) if name in (CORPUS, QUERIES):
                members[name] = info
            case ("qrels", str(name)) if name.endswith(".tsv"):
                members[f"qrels/{name}"] = info
    if any(info.flag_bits & 1 for info in members.values()):
        raise UserError(f"{archive}: is encrypted; expected a .zip without a password")
    return members


@contextlib.contextmanager
def _error_in_one_line(archive: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{archive}: damaged, or no .zip file ({error}); get it again") from error
    except OSError as error:
        raise UserError(f"collection {archive}: cannot be read: {error.strerror}") from error
    except NotImplementedError as error:  # a compression that Python does not have
        raise UserError(f"{archive}: cannot be extracted: {error}; extract it, and give the folder") from error
