"""What all commands take as a path."""

from tests.support.small_collection import failed


def test_a_path_may_begin_with_the_home_folder_and_has_no_nul(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{tmp_path}/none" in failed(capsys, "retrieve", "--collection", "~/none")
    assert "expected a name without NUL characters" in failed(capsys, "retrieve", "--collection", "a\0b")
