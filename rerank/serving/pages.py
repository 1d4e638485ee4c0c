"""The pages of the server as HTML: templates of this folder with one style; no page runs or loads anything."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

FOLDER = Path(__file__).parent
CSS = (FOLDER / "pages.css").read_text(encoding="utf-8")
STYLE = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{STYLE}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def page(template: str, status: int = 200, headers: Mapping[str, str] = {}, **values: Any) -> HTMLResponse:
    """The page of a template with these values."""
    content = TEMPLATES.get_template(template).render(css=CSS, **values)
    return HTMLResponse(content, status, {**headers, "Content-Security-Policy": POLICY})
