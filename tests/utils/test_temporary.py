"""Processes that are killed leave nothing for ever, and nothing half there."""

import fcntl
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

from rerank.utils import locks
from rerank.utils.files import atomic_write
from rerank.utils.locks import locked, remove_leftovers, temporary_place
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
ROUNDS = 12


def dead_folder(target: Path, *parts: str) -> Path:
    """What a process that was killed leaves beside `target`: the folder, with these parts in it."""
    with temporary_place(target) as folder:
        text = (folder / "lock").read_text()
    folder.mkdir()
    (folder / "lock").write_text(text)
    for part in parts:
        (folder / part).mkdir()
        (folder / part / "file").write_text(part)
    return folder


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


@pytest.mark.parametrize("parts, expected", [(["new", "old"], "old"), (["old"], None), (["new"], None), ([], None)])
def test_the_old_folder_is_put_back_if_the_new_one_was_not_in_its_place_yet(tmp_path, parts, expected):
    """With `old` alone the new folder had come into its place, and someone has removed it since."""
    dead_folder(tmp_path / "target", *parts)
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == (["target"] if expected else [])
    if expected:
        assert (tmp_path / "target" / "file").read_text() == expected


def test_writing_and_locking_remove_what_dead_processes_left(tmp_path):
    dead_folder(tmp_path / "other", "new")
    longest = "é" * 127
    with atomic_write(tmp_path / longest) as tmp:
        tmp.touch()
    assert [path.name for path in tmp_path.iterdir()] == [longest]
    dead_folder(tmp_path / "other", "new")
    with locked(tmp_path, "index"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["index.lock", longest]


def test_what_a_living_process_writes_is_kept(tmp_path):
    with temporary_place(tmp_path / "target") as mine:
        (mine / "new").write_text("mine")
        remove_leftovers(tmp_path)
        with atomic_write(tmp_path / "target") as tmp:
            tmp.write_text("another's")
        assert (mine / "new").read_text() == "mine"
    folder = dead_folder(tmp_path / "target")
    with (folder / "lock").open() as lock:  # as another process that removes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_leftovers(tmp_path)
        assert folder.is_dir()


def test_what_another_machine_writes_is_kept_for_a_day(tmp_path):
    folder = dead_folder(tmp_path / "target", "new")
    (folder / "lock").write_text("elsewhere\ntarget")
    remove_leftovers(tmp_path)
    assert folder.is_dir()
    os.utime(folder / "lock", (time.time() - locks.A_DAY - 1,) * 2)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_process_may_die_while_it_makes_its_folder(tmp_path):
    dead_folder(tmp_path / "a").joinpath("lock").unlink()
    dead_folder(tmp_path / "b").joinpath("lock").write_text("")
    remove_leftovers(tmp_path)
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


def test_files_of_others_are_no_leftovers(tmp_path):
    names = [".target.1234.part", ".film.part", "target.0123456789abcdef.part", ".a.0123456789abcdeg.part"]
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    os.mkfifo(tmp_path / ".b.0123456789abcdef.part")
    strange = tmp_path / ".c.0123456789abcdef.part"
    strange.mkdir()
    os.mkfifo(strange / "lock")  # opening it must not wait
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(names) + 2
