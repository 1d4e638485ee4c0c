import pytest

from rerank.utils import registry
from rerank.utils.registry import Hyperparameter, registered

SOURCE = '''
import torch

@register("second")
def b(scores, mask: torch.Tensor | None = None, *, size: float = -9.0, kind: str = "l2") -> int:
    """The summary.

    More.

    Args:
        scores: numbers,
            one per document.
        size: a size, with
            a second line: here.

    Reference:
        Nobody: Nothing,
        2020.
    """

@other("third")
@register("first")
def a(steps: int = 3, on: bool = True): ...

@property
def register(): ...
'''


def test_functions_are_described_by_their_source(tmp_path):
    (tmp_path / "module.py").write_text(SOURCE)
    (tmp_path / "empty.py").write_text("")
    first, second = registered(tmp_path, "register").values()
    assert (first.name, first.docstring, second.name) == ("first", "", "second")
    assert second.docstring.startswith("The summary.\n\nMore.")
    assert first.hyperparameters == {"steps": Hyperparameter(int, 3, ""), "on": Hyperparameter(bool, True, "")}
    assert second.hyperparameters == {
        "size": Hyperparameter(float, -9.0, "a size, with a second line: here."),
        "kind": Hyperparameter(str, "l2", ""),
    }
    assert list(registered(tmp_path / "module.py", "other")) == ["third"]


def test_names_and_defaults_must_be_literal_and_names_differ(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("x = 'a'\n@register(x)\ndef f(): ...\n")
    with pytest.raises(ValueError, match=r'module.py:2: expected a string literal: @register\("name"\)'):
        registered(path, "register")
    path.write_text("@register('x')\ndef f(a: int = LARGE): ...\n")
    registry._registered_in.cache_clear()
    with pytest.raises(ValueError, match=r"module.py:2: expected literals as defaults of f: name 'LARGE'"):
        registered(path, "register")
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("@other('a')\ndef f(): ...\n")
    with pytest.raises(ValueError, match=r"two.py: @other\('a'\): this name is used twice"):
        registered(tmp_path, "other")
