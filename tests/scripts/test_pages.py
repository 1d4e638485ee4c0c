"""`scripts/docs --run`: the blocks of a page, the notes on them, and what a page's report says."""

import multiprocessing

import pytest

from rerank.utils.errors import UserError
from scripts.pages.__main__ import command
from scripts.pages.blocks import blocks_of
from scripts.pages.processes import in_process
from scripts.pages.run import run_page

PAGE = """# A page

    echo one

<!-- run: stand-in 1000 => 2 -->
<!-- run: prints 4 -->

```python
number = 1000
print(2 * number)
```

```text
not code
```

1. In a list:

   ```toml
   # grid.toml
   a = 1
   ```

<!-- run: not, because it takes hours -->

    rerank train

<!-- run: nothing on this page, because of its end -->

```bash
exit 1
```
"""


@pytest.fixture
def write(tmp_path):
    """Writes a page and gives its blocks."""

    def write(text, name="page.md"):
        (tmp_path / name).write_text(text)
        return blocks_of(tmp_path, tmp_path / name)

    return write


def test_blocks_have_their_place_their_kind_and_their_notes(write):
    first, python, file, train, last = write(PAGE)
    assert (first.place, first.kind, first.code) == ("page.md:3", "shell", "echo one\n")
    assert (python.line, python.kind, python.prints) == (9, "python", ("4",))
    assert python.runnable == "number = 2\nprint(2 * number)\n"
    assert (file.file, file.code) == ("grid.toml", "# grid.toml\na = 1\n")
    assert (train.not_run, last.not_run) == ("it takes hours", "of its end")


def test_an_example_has_the_commands_of_its_docstring(write):
    (block,) = write('"""An example.\n\n    python example.py a.run\n"""\n', "example.py")
    assert (block.kind, block.code) == ("shell", "python example.py a.run\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<!-- run: nto, because -->\n\n    ls\n", "page.md:1: run: nto, because; expected not, because REASON | "),
        ("a\n\n```pyhton\n1\n```\n", "page.md:3: a block of 'pyhton'; expected one of bash, sh, python, "),
        ("<!-- run: prints a -->\n\nText.\n", "page.md:1: a note on code that no block follows; move it above"),
        ("<!-- run: prints a -->\n", "page.md:1: a note on code that no block follows; move it above"),
    ],
)
def test_a_mistake_is_one_line(write, text, line):
    with pytest.raises(UserError, match="^" + line.replace("|", r"\|")):
        write(text)


def test_a_stand_in_that_the_block_lacks_is_named(write):
    (block,) = write("<!-- run: stand-in a => b -->\n\n    ls\n")
    with pytest.raises(
        UserError, match=r"page\.md:3: the note names the stand-in of 'a', which the block does not have"
    ):
        _ = block.runnable


def test_a_page_that_does_not_exist_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no such page; expected a file such as README\.md"):
        command([str(tmp_path / "none.md")], exit_on_error=False, print_error=False)


def test_a_report_counts_blocks_and_shows_what_failed(write, tmp_path):
    """Names live on from block to block; files of blocks are there; a block behind a failed one is run."""
    (tmp_path / "world").mkdir()
    page = PAGE.replace("prints 4", "prints 5").replace("echo one", "cat none.txt") + "\n"
    end = page.index("<!-- run: nothing")
    blocks = write(page[:end] + "```python\nassert open('grid.toml').read()[-2:] == '1\\n'\nprint(number)\n```\n")
    context = multiprocessing.get_context("spawn")
    report = in_process(context, run_page, blocks, tmp_path / "world", tmp_path / "page")
    assert (report.page, report.ran, report.not_run) == ("page.md", 1, 1)
    missing, other = report.failures
    assert missing.startswith("page.md:3: FailedError: cat none.txt: exit code 1")
    assert "No such file" in missing
    assert other.startswith("page.md:9: FailedError: does not print '5'")
