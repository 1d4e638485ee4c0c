"""A page as a browser's parser sees it: elements, attributes and text."""

from html.parser import HTMLParser
from pathlib import Path

VOID = ("meta", "br", "link", "input")


class Page(HTMLParser):
    """`tags` are (name, attributes) of all elements, `text` what is shown; every element must be closed.

    `texts` are (name of the element, text) of each part of it.
    """

    def __init__(self, page: Path | str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page if isinstance(page, str) else page.read_text(encoding="utf-8"))
        self.text = "".join(text for _, text in self.texts)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)
