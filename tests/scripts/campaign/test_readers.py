"""The readers of the campaign: good files are read, and what is wrong with a reader is printed."""

import json

import pytest

from scripts.campaign import readers
from scripts.campaign.readers import READERS, Reader, read_damaged


@pytest.mark.parametrize("name", READERS)
def test_the_good_file_is_read(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reader = READERS[name]
    for file, content in {**reader.beside, reader.file: reader.good}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    reader.read(tmp_path / reader.file)


def test_what_is_no_user_error_is_printed(tmp_path, monkeypatch, capsys):
    def read(path):
        raise KeyError(path.name)

    monkeypatch.setattr(readers, "READERS", {"faulty": Reader("some.run", b"q1 Q0 d1 1 1.0 tag\n", read)})
    monkeypatch.chdir(tmp_path)
    read_damaged(["faulty", "1", "3"])
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 3
    assert all(what.endswith(": KeyError: 'some.run'") for what in found)
