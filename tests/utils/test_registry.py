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
