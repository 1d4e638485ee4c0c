"""Files of a folder that a stranger may have made: regular files, none of them outside it by a link or `..`."""

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path, PurePath

from rerank.utils.errors import UserError

HUB_SNAPSHOTS = "snapshots"
"""The folder of a model's versions in the cache of the Hugging Face hub: links to the files in HUB_BLOBS."""
HUB_BLOBS = "blobs"
"""The folder of a model's files in this cache."""
MOST_BYTES = 2**28  # of a file that is read whole


def inside(folder: Path, name: str | PurePath) -> Path:
    """The path of a file or a folder in `folder`, which need not exist, by its name relative to the folder.

    Raises UserError for a name that leads out of the folder, by `..` or by a link, and for what is neither a regular
    file nor a folder.
    """
    path, root = folder / name, _root(folder)
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(root):
        how = "is a link that leads" if path.is_symlink() else "leads"
        raise UserError(f"{path}: {how} out of {folder}; expected a file in the folder: put a copy there")
    if os.path.lexists(path) and not (target.is_file() or target.is_dir()):
        kinds = "a FIFO, a socket, a device or a link to nothing"
        raise UserError(f"{path}: is {kinds}; expected a regular file: remove it")
    return path


def check_inside(folder: Path) -> None:
    """Raises UserError as `inside` for anything in a folder and in the folders in it; there may be no folder."""
    for path in _special(folder) if folder.is_dir() else ():
        inside(folder, path.relative_to(folder))


def check_files_inside(folder: Path) -> None:
    """Raises UserError as `inside` for what is directly in a folder and is no folder, nor a link to one."""
    for path in folder.iterdir():
        if not path.is_dir():
            inside(folder, path.name)


def _special(folder: Path | str) -> Iterator[Path]:
    """What is neither a regular file nor a folder, at any depth; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _special(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _root(folder: Path) -> Path:
    """The folder, without links; of a snapshot in the hub's cache, the folder that also has the files it links to."""
    root = Path(os.path.realpath(folder))
    model = root.parent.parent
    return model if root.parent.name == HUB_SNAPSHOTS and (model / HUB_BLOBS).is_dir() else root


def open_regular(path: str | Path) -> BufferedReader:
    """A regular file, open for reading; raises OSError for anything else, without waiting for the writer of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_regular(path: str | Path) -> bytes:
    """The bytes of a regular file; raises OSError for anything else, and for more than MOST_BYTES."""
    with open_regular(path) as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"More than {MOST_BYTES // 2**20} MiB", str(path))
    return found


def copy_files(folder: Path, target: Path, files: Iterable[Path]) -> None:
    """Copies files of a folder into a new one, in folders of the same names; raises UserError as `inside`."""
    target.mkdir(parents=True)
    for file in files:
        name = file.relative_to(folder)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(inside(folder, name), target / name)
