"""A hook of MkDocs: generates the reference from the code, and pages from Markdown files of the root folder."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import rerank

ROOT = Path(__file__).parents[2]

LOSSES_PAGE = """# All losses

The command line takes these names in `--loss`; in Python, a loss is `rerank.losses.NAME(scores, labels, mask)`. Each
hyperparameter is a flag, such as `--loss.stop-gradient`. [Their papers](../papers.md) has the formulas and sources.
The labels of a loss are judgments, 0 and above, or the scores of a teacher, which `--training.lists` gives.

| name | loss | labels | hyperparameters | |
| --- | --- | --- | --- | --- |
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the API pages in the navigation."""
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    entry = next(entry for entry in reference if "Python API" in entry)
    entry["Python API"] = [{package: f"reference/api/{package}.md"} for package in public_packages()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    pages = {
        "reference/cli.md": command_line_page(),
        "reference/losses.md": losses_page((ROOT / "docs" / "papers.md").read_text(encoding="utf-8")),
        "changelog.md": root_page("CHANGELOG.md"),
        "contributing.md": root_page("CONTRIBUTING.md"),
        "security.md": root_page("SECURITY.md"),
        **{f"reference/api/{package}.md": api_page(package) for package in public_packages()},
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to CONTRIBUTING.md and SECURITY.md of the root folder at their pages."""
    names = r"\]\(((?:\.\./)*)\.\./(CONTRIBUTING|SECURITY)\.md"
    return re.sub(names, lambda match: f"]({match[1]}{match[2].lower()}.md", markdown)


def command_line_page() -> str:
    """The help of every command, as Markdown."""
    from rerank.cli.app import make_app

    page = make_app().generate_docs(output_format="markdown")
    page = re.sub(r"## Table of Contents\n.*?(?=\*\*Commands)", "", page, flags=re.DOTALL)  # the site has its own
    return "# Command line\n" + escape_tags(page).removeprefix("# rerank")


def losses_page(papers: str) -> str:
    """A table of all losses with their hyperparameters, linked to their formulas in papers.md where it names them."""
    from rerank.losses import LABELS, LOSSES

    sections = sections_of_names(papers)
    rows = []
    for name, loss in LOSSES.items():
        hyperparameters = list(inspect.signature(loss).parameters.values())[3:]  # after scores, labels and mask
        defaults = ", ".join(f"`{p.name}={p.default!r}`" for p in hyperparameters if p.default is not None)
        summary = escape_tags((inspect.getdoc(loss) or "").partition("\n")[0]).replace("|", r"\|")
        section = f"[formula](../papers.md#{sections[name]})" if name in sections else ""
        rows.append(f"| `{name}` | {summary} | {LABELS[name]} | {defaults} | {section} |")
    return LOSSES_PAGE + "\n".join(rows)


def sections_of_names(markdown: str) -> dict[str, str]:
    """Maps each name in backquotes to the anchor of its section: the one whose heading names it, else the first one."""
    sections = [section.partition("\n")[::2] for section in re.split(r"^## ", markdown, flags=re.MULTILINE)[1:]]
    anchors = [slugify(heading.replace("`", ""), "-") for heading, _ in sections]
    names: dict[str, str] = {}
    for place in (0, 1):
        for section, anchor in zip(sections, anchors, strict=True):
            for name in re.findall(r"`(\w+)", section[place]):
                names.setdefault(name, anchor)
    return names


def api_page(package: str) -> str:
    """A page for mkdocstrings: the docstring of a package, and each of its public names where it is defined."""
    module = importlib.import_module(package)
    lines = [f"# {package}\n", f"::: {package}\n    options: {{members: false, show_root_heading: false}}\n"]
    for name in sorted(getattr(module, "__all__", []), key=str.lower):
        public = getattr(module, name)
        if inspect.ismodule(public):
            continue  # a package has a page of its own
        home = (
            getattr(public, "__module__", package) if inspect.isclass(public) or inspect.isfunction(public) else package
        )
        lines += [f"::: {home}.{getattr(public, '__name__', name)}" if home != package else f"::: {package}.{name}"]
        lines += [f"    options: {{heading: {package}.{name}, toc_label: {name}}}\n"]
    return "\n".join(lines)


def public_packages() -> list[str]:
    """`rerank` and those of its packages that export names."""
    packages = [f"rerank.{module.name}" for module in pkgutil.iter_modules(rerank.__path__) if module.ispkg]
    return ["rerank", *(name for name in packages if hasattr(importlib.import_module(name), "__all__"))]


def root_page(name: str) -> str:
    """A Markdown file of the root folder with its links into docs/ corrected."""
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")


def escape_tags(markdown: str) -> str:
    """Escapes `<name>` outside code, which Markdown would take for HTML."""
    parts = re.split(r"(```.*?```|`[^`]*`)", markdown, flags=re.DOTALL)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
