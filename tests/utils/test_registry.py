"""The registry that losses, poolings, stages, tests, trackers and readers share."""

import pytest

from rerank.utils.registry import Registry, hyperparameters, registered


def first(): ...


def second(): ...


def test_a_name_is_given_once_and_a_wrong_one_is_told_the_nearest():
    shapes = Registry("shape")
    assert shapes.register("circle", first) is first
    assert shapes.register("circle", first) is first  # a notebook's cell may run again
    with pytest.raises(ValueError, match=r"shape 'circle' is registered already, by tests.utils.test_registry.first"):
        shapes.register("circle", second)
    assert shapes.find("circle") is first
    with pytest.raises(ValueError, match=r"cirle: no such shape; did you mean circle\?"):
        shapes.find("cirle")
    shapes.register("square", second)
    with pytest.raises(ValueError, match="xyz: no such shape; expected one of circle, square"):
        shapes.find("xyz")
    assert dict(registered("shape")) == {"circle": first, "square": second}
    assert len(shapes) == 2
    assert not registered("nothing of this kind")


def test_hyperparameters_are_what_a_setting_can_give():
    def function(scores, mask: "list | None" = None, on: bool = True, *, size: "float" = 2, steps: int = 3): ...

    assert hyperparameters(function) == {"on": True, "size": 2.0, "steps": 3}
    assert isinstance(hyperparameters(function)["size"], float)
