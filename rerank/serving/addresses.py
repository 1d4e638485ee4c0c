"""Addresses: a request's path without a trailing slash, the version of an API, and the name of one before it."""

import re
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

PATH = re.compile(
    r"(?:/(?P<dialect>tei|jina|cohere|infinity|voyage|vllm|openai))?(?:/(?P<version>v[12]))*(?P<path>/.*)?"
)


class Address(NamedTuple):
    """`/infinity/v1/rerank/` is the path /rerank in version v1 of infinity; version and dialect may be ""."""

    path: str
    version: str = ""
    dialect: str = ""


def address_of(path: str) -> Address:
    """The address of a path; of several versions, as of a base_url that has one, the last counts.

    >>> address_of("/v1/v2/rerank/"), address_of("/"), address_of("/infinity/rerank").dialect
    (Address(path='/rerank', version='v2', dialect=''), Address(path='/', version='', dialect=''), 'infinity')
    """
    found = PATH.fullmatch(path.rstrip("/"))
    if not found:
        return Address(path)
    return Address(found["path"] or "/", found["version"] or "", found["dialect"] or "")


def addressed(app: ASGIApp) -> ASGIApp:
    """The application, which finds the path without version, and the address in the scope."""

    async def with_address(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = address_of(scope["path"])
            scope = dict(scope) | {"path": address.path, "address": address}
        await app(scope, receive, send)

    return with_address
