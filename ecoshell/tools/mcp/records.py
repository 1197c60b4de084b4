"""Converts what a server sends (lists, results, errors) to records for the shell, within limits."""

import base64
import contextlib
import itertools
import json
import mimetypes
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ecoshell.images import MAX_BYTES, MAX_IMAGES
from ecoshell.paths import make_private

if TYPE_CHECKING:
    from mcp import Client

_MAX_ENTRIES = 2_000  # maximum entries of each of the server's lists
_MAX_LIST_CHARS = 1 << 22  # maximum characters of all lists; the shell reads them at once
_MAX_PAGES = 100
_MAX_IMAGE_CHARS = MAX_BYTES * 4 // 3 + 4  # maximum length of an image in base64
_MAX_FILE_BYTES = 20_000_000  # maximum bytes of the files saved for one result
MAX_MESSAGE_CHARS = 600
_FAULT = "ecoshell/fault"  # the key of the metadata of a marker
TOO_LARGE = "it sent more than fits into memory"


async def read_lists(client: "Client") -> dict[str, Any]:
    """Return the server's lists as a record for the shell; raises only if the tools cannot be listed."""
    supported, info = client.server_capabilities, client.server_info
    has_others = supported.prompts is not None or supported.resources is not None
    no_tools = supported.tools is None and has_others
    tools = [] if no_tools else await _pages("tools", client.list_tools)
    optional: dict[str, list[Any]] = {"prompts": [], "resources": [], "resource_templates": []}
    for kind, fetch, support in (
        ("prompts", client.list_prompts, supported.prompts),
        ("resources", client.list_resources, supported.resources),
        ("resource_templates", client.list_resource_templates, supported.resources),
    ):
        with contextlib.suppress(Exception):
            optional[kind] = await _pages(kind, fetch) if support is not None else []
    lists = {
        "tools": [
            {
                "name": tool.name,
                "description": tool.description or tool.title or "",
                "parameters": tool.input_schema,
                "read_only": bool(tool.annotations and tool.annotations.read_only_hint),
                "task": bool(tool.execution and tool.execution.task_support == "required"),
                "fault": str(tool.meta[_FAULT]) if _FAULT in (tool.meta or ()) else "",
            }
            for tool in tools
        ],
        "prompts": [
            {
                "name": prompt.name,
                "description": prompt.description or prompt.title or "",
                "arguments": [
                    [argument.name, bool(argument.required)] for argument in prompt.arguments or ()
                ],
            }
            for prompt in optional["prompts"]
        ],
        "resources": [str(resource.uri) for resource in optional["resources"]],
        "templates": [template.uri_template for template in optional["resource_templates"]],
        "completes": supported.completions is not None,
        "about": f"{info.name} {info.version}"[:MAX_MESSAGE_CHARS] if info is not None else "",
    }
    if len(json.dumps(lists)) > _MAX_LIST_CHARS:
        raise RuntimeError(f"its lists have more than {_MAX_LIST_CHARS:,} characters")
    return lists


def mark_invalid_tools(result: dict[str, Any], version: str) -> None:
    """Replace invalid tools of a tool list by markers with the fault, because the SDK would reject the whole list."""
    tools = result.get("tools")
    if not isinstance(tools, list) or "content" in result or not _list_fault(result, version):
        return
    for at, tool in enumerate(cast("list[Any]", tools)):
        if fault := _list_fault({**result, "tools": [tool]}, version):
            name = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else tool
            marker = {"name": str(name)[:MAX_MESSAGE_CHARS], "inputSchema": {"type": "object"}}
            tools[at] = {**marker, "_meta": {_FAULT: fault}}


def _list_fault(result: dict[str, Any], version: str) -> str:
    """Return the first fault of a tool list; empty without one."""
    from mcp_types.methods import parse_server_result
    from pydantic import ValidationError

    try:
        parse_server_result("tools/list", version, result)
    except ValidationError as error:
        return _first_fault(error, within=("tools", 0))
    except (KeyError, ValueError):  # a version of the protocol that the SDK does not check
        pass
    return ""


def _first_fault(error: Any, *, within: tuple[str | int, ...] = ()) -> str:
    """Return the first fault of a validation error as a clause."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place, message = first["loc"], first["msg"]
    if place[: len(within)] == within:
        place = place[len(within) :]
    path = ".".join(map(str, place)) or "it"
    return f"{path} is invalid: {message[:1].lower()}{message[1:]}"[:MAX_MESSAGE_CHARS]


async def _pages(kind: str, fetch: Callable[..., Awaitable[Any]]) -> list[Any]:
    """Return the entries of all pages of a list; raises RuntimeError if it is too long or endless."""
    entries: list[Any] = []
    cursor: str | None = None
    for number in itertools.count(1):
        page = await fetch(cursor=cursor)
        entries += getattr(page, kind)
        if len(entries) > _MAX_ENTRIES:
            raise RuntimeError(f"its list of {kind} has more than {_MAX_ENTRIES:,}")
        if number > _MAX_PAGES or (page.next_cursor and page.next_cursor == cursor):
            pages = f"{len(entries):,} {kind} on {number} pages"
            raise RuntimeError(f"its list of {kind} does not end ({pages})")
        cursor = page.next_cursor
        if not cursor:
            break
    return entries


Save = Callable[[str, str | None, str], str]  # from kind, media type and base64 to a note


def file_saver(folder: str | None) -> Save:
    """Return a function that saves the files of one result in the folder, within a size limit; None saves nothing."""
    room = _MAX_FILE_BYTES if folder else 0

    def save(kind: str, media: str | None, data: str) -> str:
        nonlocal room
        size = len(data) * 3 // 4
        label = f"{kind} {media or ''}".strip()
        if folder is None or size > room:
            return f"[{label}, {size:,} bytes, not saved]"
        try:
            content = base64.b64decode(data, validate=True)
            make_private(Path(folder))
            subtype = (media or "").partition("/")[2]
            fallback = f".{subtype}" if re.fullmatch(r"\w{2,8}", subtype) else ".bin"
            suffix = mimetypes.guess_extension(media or "") or fallback
            prefix = re.sub(r"\W+", "-", kind)[:40] + "-"
            descriptor, path = tempfile.mkstemp(suffix, prefix, folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except (ValueError, OSError) as error:
            return f"[{label}, not saved: {error}]"
        room -= size
        return f"[{label}, {len(content):,} bytes, saved as {path}]"

    return save


def text_of(block: Any, save: Save) -> str:
    """Return a block of a result, prompt or resource as text."""
    match getattr(block, "type", ""):
        case "text":
            return block.text
        case "image" | "audio":
            return save(block.type, block.mime_type, block.data)
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case _:
            resource = getattr(block, "resource", block)
            text = getattr(resource, "text", None)
            if text is not None:
                return text
            return save(f"resource {resource.uri}", resource.mime_type, resource.blob)


def images_of(blocks: Iterable[Any]) -> list[str]:
    """Return the images among blocks and resources in base64, except those too large for models."""
    images: list[str] = []
    for block in blocks:
        content = getattr(block, "resource", block)
        data = getattr(content, "blob", None) or getattr(content, "data", None)
        is_image = (getattr(content, "mime_type", None) or "").startswith("image/")
        if is_image and isinstance(data, str) and len(data) <= _MAX_IMAGE_CHARS:
            images.append(data)
    return images[:MAX_IMAGES]


def describe(error: BaseException) -> str:
    """Return an error as one line; the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    cause: BaseException | None = error
    while cause is not None:  # asyncio reports it as a broken connection
        if isinstance(cause, MemoryError):
            return TOO_LARGE
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split()) or type(error).__name__
    if hasattr(error, "errors") and hasattr(error, "error_count"):  # from pydantic
        text = f"it sent an invalid reply, {_first_fault(error)}"
    invalid: Any = error.__cause__
    if isinstance(error, RuntimeError) and hasattr(invalid, "json_path"):  # from jsonschema
        fault = f"{invalid.json_path}: {invalid.message}"
        text = f"its result does not match its output schema, {fault}"
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 1]}…"
