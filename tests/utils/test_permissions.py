"""Who may read what was written."""

import os
import stat

import pytest

from rerank.utils.files import atomic_write


@pytest.mark.parametrize("folder", [False, True])
def test_the_umask_decides_who_may_read_what_another_library_wrote_for_its_user_alone(tmp_path, folder):
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "target") as tmp:
            if folder:
                tmp.mkdir()
            file = tmp / "model.safetensors" if folder else tmp
            file.touch()
            file.chmod(0o600)
    finally:
        os.umask(before)
    written = tmp_path / "target" / "model.safetensors" if folder else tmp_path / "target"
    assert stat.S_IMODE(written.stat().st_mode) == 0o640
