"""Processes that are killed leave nothing for ever, and nothing half there."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rerank.utils import files
from rerank.utils.files import atomic_write, remove_at_once, remove_leftovers
from rerank.utils.locks import locked
from tests.support.paths import ROOT

WRITE_FOR_EVER = """
import sys
from rerank.utils.files import atomic_write
version = 0
while True:
    version += 1
    for name in ("file", "folder"):
        with atomic_write(f"{sys.argv[1]}/{name}") as tmp:
            if name == "folder":
                tmp.mkdir()
                (tmp / "b").write_text(f"{version}")
            (tmp / "a" if name == "folder" else tmp).write_text(f"{version}" * 1000)
    if version == 1:
        print("begun", flush=True)
"""
DIE_WHILE_WRITING = """
import os, sys
from pathlib import Path
from rerank.utils.files import atomic_write
with atomic_write(sys.argv[1]) as tmp:
    for part in sys.argv[2:]:
        (tmp.parent / part).mkdir()
        (tmp.parent / part / "file").write_text(part)
    print(tmp.parent, flush=True)
    os._exit(1)
"""
ROUNDS = 12


def dead_folder(target: Path, *parts: str, first: str = "") -> Path:
    """What a process that was killed leaves beside `target`: a folder with the new and the replaced one in it.

    `first` is code that the process begins with.
    """
    command = [sys.executable, "-c", first + DIE_WHILE_WRITING, str(target), *parts]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    return Path(done.stdout.strip())


def as_process(number: int) -> str:
    """Code of a process that has this number."""
    return f"import os\nos.getpid = lambda: {number}"


IN_ANOTHER_CONTAINER = """
import platform
from pathlib import Path
Path.readlink = lambda path: "pid:[another]"
platform.node = lambda: "another"
"""


def test_a_process_that_is_killed_at_any_time_leaves_whole_files_and_nothing_else(tmp_path):
    rng = random.Random(0)
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"begun\n"
        time.sleep(rng.uniform(0, 0.02))
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))  # neither is handled in this program
        process.communicate()
        remove_leftovers(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
        a, b = (tmp_path / "folder" / "a").read_text(), (tmp_path / "folder" / "b").read_text()
        assert a == b * 1000
        assert len((tmp_path / "file").read_text()) % 1000 == 0


@pytest.mark.parametrize(
    "parts, expected",
    [(["t", "t.old"], "t.old"), (["t.old"], None), (["t"], None), (["other", "t.old"], None), ([], None)],
)
def test_the_old_folder_is_put_back_if_the_new_one_was_not_in_its_place_yet(tmp_path, parts, expected):
    """Without the new one, that had come into its place, and someone has removed it since."""
    dead_folder(tmp_path / "t", *parts)
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == (["t"] if expected else [])
    if expected:
        assert (tmp_path / "t" / "file").read_text() == expected


def test_writing_and_locking_remove_what_dead_processes_left(tmp_path):
    dead_folder(tmp_path / "other", "new")
    longest = "é" * 127
    with atomic_write(tmp_path / longest) as tmp:
        tmp.touch()
    assert [path.name for path in tmp_path.iterdir()] == [longest]
    dead_folder(tmp_path / "other", "new", first=as_process(os.getpid()))  # of a container that was started again
    with locked(tmp_path, "index"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["index.lock", longest]


def test_what_a_living_process_writes_is_kept(tmp_path):
    dead_folder(tmp_path / "other", first=as_process(os.getppid()))
    with atomic_write(tmp_path / "target") as mine:
        mine.write_text("mine")
        remove_leftovers(tmp_path)
        with atomic_write(tmp_path / "target") as tmp:
            tmp.write_text("another's")
        assert (mine.read_text(), (tmp_path / "target").read_text()) == ("mine", "another's")
    assert (tmp_path / "target").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_another_machine_writes_is_kept_for_a_day(tmp_path):
    folder = dead_folder(tmp_path / "target", "new", first=IN_ANOTHER_CONTAINER)
    remove_leftovers(tmp_path)
    assert folder.is_dir()
    os.utime(folder, (time.time() - files.A_DAY - 1,) * 2)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_removed_at_once(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "file").touch()
    for _ in range(2):
        remove_at_once(tmp_path / "parts")
        assert list(tmp_path.iterdir()) == []


def test_processes_that_remove_leftovers_disturb_none_that_begins(tmp_path):
    """Its folder is empty, and then has an empty lock, before it can be told from a leftover."""
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            remove_leftovers(tmp_path)

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(remove) for _ in range(2)]
        try:
            for number in range(200):
                with atomic_write(tmp_path / "target") as tmp:
                    tmp.write_text(str(number))
                assert (tmp_path / "target").read_text() == str(number)
        finally:
            ended.set()
        for other in others:
            other.result()
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_files_of_others_are_no_leftovers_and_links_are_not_followed(tmp_path):
    """Whoever gives a folder to others does not know the key that signs the names of leftovers."""
    left = dead_folder(tmp_path / "there" / "target", "target", "target.old")
    names = [
        *(".target.1234.part", ".film.part", ".a.0123456789abcdef.part"),
        f"{left.name.rpartition('-')[0]}-{'2' * 16}.part",
        f".b.{'0' * 8}-999999999-{'0' * 8}-{'1' * 8}-{'2' * 16}.part",
    ]
    for name in names:
        (tmp_path / "here" / name / "c.old").mkdir(parents=True)
        (tmp_path / "here" / name / "c").mkdir()
        os.utime(tmp_path / "here" / name, (0, 0))
    (tmp_path / "here" / left.name).symlink_to(left)
    inside = dead_folder(tmp_path / "here" / "b", "b")
    (inside / "link").symlink_to(tmp_path / "there")
    (inside / "b.old").symlink_to(tmp_path / "there")
    remove_leftovers(tmp_path / "here")
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == sorted([*names, left.name])
    assert (left / "target.old" / "file").exists()
