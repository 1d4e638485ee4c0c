"""Checks of output paths, atomic writes of files and folders, file hashes, and the user's cache.

An output is first written to a folder beside the target, whose name ends in .part, and then renamed. The folder's name
contains the machine, the process and a signature of the user, so the next command of the user can remove the leftovers
of a killed one, and nothing that someone else has given such a name.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json
from rerank.utils.progress import progress

BLOCK = 2**24  # bytes that are hashed at once
LARGE = 2**26  # bytes from which a file's hash is cached; hashing a smaller file takes less than half a second
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # errors of a full disk
REFUSALS = FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR}  # errors that a user can fix
ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]|os error (\d+)\)")  # shutil and safetensors have their own exceptions
PART = re.compile(  # machine, process, its token, a number, and the user's signature of all before it
    r"(?P<signed>\..+\.(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-(?P<token>[0-9a-f]{8})-[0-9a-f]{8})"
    r"-(?P<signature>[0-9a-f]{16})\.part",
    re.DOTALL,
)
KEY = "key"  # the file in the user's cache that signs the names of .part folders
TOKEN = secrets.token_hex(4)  # identifies this process: a restarted container has the same process ids
SHOWN = 50  # characters of the target's name in the name of its .part folder; a file name has at most 255 bytes
OLD = ".old"  # suffix of the replaced file or folder in the .part folder
A_DAY = 24 * 3600.0


def _output_target(path: str | Path, flag: str = "") -> Path:
    """The file or folder that a write to `path` makes or replaces; raises UserError for `.`, `/`, a link, a device."""
    target = Path(path)
    if not target.name:
        raise UserError(f"{flag}{path}: is a folder in use; expected the name of a new file or folder")
    if target.is_symlink():
        raise UserError(f"{flag}{path}: is a link, which is not followed; remove it, or name what it points to")
    if os.path.lexists(target) and not target.is_file() and not target.is_dir():
        raise UserError(f"{flag}{path}: is a FIFO, a socket or a device; expected the name of a new or a regular file")
    return target


def check_output(path: str | Path, flag: str = "--out") -> None:
    """Raises UserError, before any work, if `path` cannot be written as a file."""
    if _writable_target(path, flag).is_dir():
        raise UserError(f"{flag} {path}: is a folder, expected the name of a file to write")


def check_new_folder(out: Path, flag: str = "--out") -> None:
    """Raises UserError, before any work, if `out` is not a new or an empty folder, or cannot be written."""
    target = _writable_target(out, flag)
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UserError(f"{flag} {out}: already exists; expected a new folder to write")


def _writable_target(path: str | Path, flag: str) -> Path:
    """The `_output_target`, after a trial write to its nearest existing parent folder."""
    target = _output_target(path, f"{flag} ")
    existing = next(parent for parent in target.absolute().parents if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return target
    except OSError as error:
        raise UserError(f"{flag} {path}: cannot be written: {existing}: {error.strerror}") from error


@contextlib.contextmanager
def atomic_write(target: str | Path) -> Iterator[Path]:
    """Yields a temporary path to write a file or a folder at; it replaces `target` after the block.

    If the block fails, also by a full disk or an interrupt, `target` is unchanged and the temporary path is removed.
    Leftovers of killed processes beside `target` are removed too. The umask sets the permissions of all files that were
    written. Raises UserError if the path cannot be written to, the disk is full, a file would replace a folder, or
    `target` is a link, a device, a FIFO or a socket.
    """
    path, target = Path(target), _output_target(target)
    with _part_folder(path, target) as part:
        new = part / target.name
        with refused_in_one_line(f"{path}: cannot be written", "; what was there before is kept"):
            yield new
            readable = stat.S_IMODE(part.stat().st_mode) & 0o666
            for file in [new, *new.rglob("*")]:
                if file.is_file() and not file.is_symlink():  # safetensors writes files that only the user can read
                    file.chmod(stat.S_IMODE(file.stat().st_mode) | readable)
            if target.is_dir():  # a folder cannot be renamed over a folder that is not empty
                if not new.is_dir():
                    raise UserError(f"{path}: is a folder, expected the name of a file to write; the folder is kept")
                os.replace(target, part / f"{target.name}{OLD}")
            os.replace(new, target)


def write_text(target: str | Path, text: str) -> None:
    """Writes a text as UTF-8 with `atomic_write`; raises its errors."""
    with atomic_write(target) as tmp:
        tmp.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    """Removes a file, a folder or a symbolic link, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_at_once(folder: Path) -> None:
    """Removes a folder, if it exists. It is moved away first, so no process sees it half removed."""
    with contextlib.suppress(FileNotFoundError), _part_folder(folder, folder) as part:
        os.replace(folder, part / folder.name)


def remove_leftovers(folder: Path) -> None:
    """Removes the .part folders that dead processes of this user left in `folder`; links are not followed.

    If a process died after moving the old folder away and before moving the new one in, the old one is restored. The
    .part folders of other machines and containers, whose processes are invisible here, are removed after a day. A
    folder whose name this user's key did not sign is not touched: anyone can give such a name.
    """
    with contextlib.suppress(OSError):  # for example a folder that may be written but not listed
        for path in list(folder.iterdir()):
            if found := PART.fullmatch(path.name):
                with contextlib.suppress(OSError):  # another process removes it, or it cannot be removed
                    if _is_left(path, found):
                        _clear(path)


@contextlib.contextmanager
def _part_folder(path: Path, target: Path) -> Iterator[Path]:
    """Yields a new folder beside `target`, and removes it after the block."""
    remove_leftovers(target.parent)
    name = f".{target.name[:SHOWN]}.{_machine()}-{os.getpid()}-{TOKEN}-{secrets.token_hex(4)}"
    part = target.with_name(f"{name}-{_signature(name)}.part")
    try:
        try:
            part.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {target.parent}: {error.strerror}") from error
        yield part
    finally:
        try:
            _clear(part)
        except KeyboardInterrupt:  # a signal that arrives while the folder is removed
            _clear(part)
            raise


def _clear(part: Path) -> None:
    """Restores a replaced folder if the new one is not in place yet, and removes the rest."""
    for old in part.glob(f"*{OLD}"):
        new = part / old.name.removesuffix(OLD)
        moved = old.is_dir() and not old.is_symlink()
        if moved and new.exists() and not os.path.lexists(target := part.with_name(new.name)):
            os.replace(old, target)
    shutil.rmtree(part, ignore_errors=True)


def _is_left(path: Path, name: re.Match[str]) -> bool:
    """Whether a .part folder was left by a process of this user that has died."""
    status, process = path.lstat(), int(name["process"])
    if not stat.S_ISDIR(status.st_mode) or not secrets.compare_digest(_signature(name["signed"]), name["signature"]):
        return False
    if name["machine"] != _machine():
        return time.time() - status.st_mtime > A_DAY
    if process == os.getpid():
        return name["token"] != TOKEN
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's process has the id now
        return False
    return False


def _signature(name: str) -> str:
    """16 hexadecimal digits that only the processes of this user can make of a name."""
    return hashlib.blake2b(os.fsencode(name), key=_key(), digest_size=8).hexdigest()


@functools.cache
def _key() -> bytes:
    """The user's key, which is made on first use; one of this process if the user's cache cannot be written."""
    place, key = user_cache(KEY), secrets.token_bytes(32)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent) as file:
            file.write(key)
            file.flush()
            with contextlib.suppress(FileExistsError):  # it stays what another process has made it
                os.link(file.name, place)
        return place.read_bytes()[:64] or key
    except OSError:
        return key


@functools.cache
def _machine() -> str:
    """8 hexadecimal digits that are equal for processes that see each other's process ids."""
    boot, container = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    name = f"{boot.read_text()}{container.readlink()}" if boot.is_file() and container.exists() else platform.node()
    return hashlib.sha256(name.encode()).hexdigest()[:8]


@contextlib.contextmanager
def refused_in_one_line(what: str, end: str = "") -> Iterator[None]:
    """Turns an error of REFUSALS in the block into a UserError: `what`, the reason, `end`."""
    try:
        yield
    except Exception as error:
        found = ERROR_NUMBER.search(str(error))
        number = int(found[1] or found[2]) if found else None
        if number not in REFUSALS:
            raise
        raise UserError(f"{what}: {os.strerror(number)}{end}") from error


def short_hash(*parts: object) -> str:
    """16 hexadecimal digits that name a cache entry: the same parts, as text, give the same digits."""
    return short_hash_of(parts)


def short_hash_of(parts: Iterable[object]) -> str:
    """The `short_hash` of an iterable, which may have millions of parts."""
    digest, between = hashlib.sha256(), ""
    for part in parts:
        digest.update(f"{between}{part}".encode())
        between = "\x1f"
    return digest.hexdigest()[:16]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes; a large file shows a progress bar."""
    digest, blocks = hashlib.sha256(), -(-path.stat().st_size // BLOCK)
    with path.open("rb") as file:
        for block in progress(iter(lambda: file.read(BLOCK), b""), blocks, f"hashing {path.name}", show=blocks > 4):
            digest.update(block)
    return digest.hexdigest()


def kept_hash(path: Path) -> str:
    """The `file_hash`, cached in the user's cache for a large file: reading 22 GB takes half a minute.

    It is computed again when the file's size, modification time or change time differs.
    """
    status = path.stat()
    if status.st_size < LARGE:
        return file_hash(path)
    stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    place = user_cache("hashes") / f"{short_hash(path.resolve())}.json"
    with contextlib.suppress(OSError, ValueError):  # no cached hash, or a damaged one
        kept_stamp, digest = parse_json(place.read_bytes(), tuple[list[int], str])
        if kept_stamp == stamp:
            return str(digest)
    digest = file_hash(path)
    with contextlib.suppress(UserError):  # without a cache the next call only takes longer
        write_text(place, json.dumps([stamp, digest]))
    return digest


def user_cache(name: str) -> Path:
    """A folder of the user's cache, for data derived from files whose own folder may be read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rerank" / name
