"""The fields of requests: each says whether it is honoured, refused, or without effect by definition."""

import functools
from typing import Any, Literal

import msgspec

from rerank.serving.refusals import Reason, RefusalError

Use = Literal["honoured", "refused", "without effect"]
"""What the server makes of a field."""
Body = dict[str, Any]
"""The JSON object of a request."""
Request = msgspec.Struct
"""The fields of an API's requests; every one is annotated with one of the three functions below."""

DIRECTION = msgspec.Meta(pattern="^([Ll]eft|[Rr]ight)$")
LEFT_OUT: tuple[Any, ...] = (None, False, 0, "", {}, [])
"""Values that ask for nothing."""


def honoured(text: str) -> msgspec.Meta:
    """A field that the answer follows."""
    return _field("honoured", text)


def refused(text: str, accepted: tuple[Any, ...] = LEFT_OUT) -> msgspec.Meta:
    """A field that asks for what this server does not do: any value but the `accepted` ones is refused."""
    return _field("refused", text, accepted=accepted)


def without_effect(text: str) -> msgspec.Meta:
    """A field that, as its API defines it, changes nothing in the answer of this server; the text says why."""
    return _field("without effect", text)


def _field(use: Use, text: str, **more: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra={"use": use, "text": text, **more})


@functools.cache
def uses(kind: type[Request]) -> dict[str, dict[str, Any]]:
    """The name of each field of a request -> its `use`, its `text`, and what a refused one accepts."""
    return {field.name: field.type.extra for field in msgspec.inspect.type_info(kind).fields}  # type: ignore[attr-defined]


def convert(body: Body, kind: type[Request], strict: bool) -> Any:
    """The request of a JSON object; not `strict`, "true" is a boolean and "3" a number.

    Raises RefusalError, which names the field and never has its value.
    """
    try:
        found = msgspec.convert(body, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None
    for name, field in uses(kind).items():
        if field["use"] == "refused" and getattr(found, name) not in field["accepted"]:
            raise RefusalError(Reason.INVALID, f"{name}: {field['text']}; leave it out")
    return found


def _refusal(message: str) -> RefusalError:
    """That of a message such as "Expected `str`, got `int` - at `$.query`"."""
    reason, _, place = message.partition(" - at `$")
    place = place.removeprefix(".").rstrip("`")
    if reason.startswith("Object contains unknown field"):
        return RefusalError(Reason.UNKNOWN_FIELD, f"{reason.split('`')[1]}: is not a field of this API; leave it out")
    if reason.startswith("Object missing required field") and not place:
        place, reason = reason.split("`")[1], "is missing"
    return RefusalError(Reason.INVALID, f"{place}: {reason[0].lower()}{reason[1:]}")
