"""Converts the content blocks of a prompt to a question with attachments."""

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acp import schema

from ecoshell.agent.mentions import FILE_BYTES
from ecoshell.errors import ToolError
from ecoshell.images import attached, image_of_base64
from ecoshell.messages import Attachment, visible_line

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)

_WORD = re.compile(r"[\w@]")


def read_prompt(blocks: Sequence[Block], workspace: str) -> tuple[str, list[Attachment], list[str]]:
    """Convert a prompt's blocks to a question, its attachments, and notices about cut or skipped content.

    A link to a file in the workspace becomes a mention, which attaches the file. The question of a prompt that has only
    images is their labels.
    """
    root = os.path.realpath(workspace)
    text, attachments, notices = "", list[Attachment](), list[str]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                added = block.text
            case schema.ResourceContentBlock(uri=added):
                path = _workspace_path(root, added)
                if path is not None:
                    added = f'@"{path}"'  # quoted, so that the mention ends here
                elif added.startswith("file:"):
                    notices.append(f"{added} was not attached: it is outside the workspace.")
            case schema.EmbeddedResourceContentBlock(
                resource=schema.TextResourceContents(uri=uri, text=content)
            ):
                path, lines = _workspace_path(root, uri), uri.partition("#")[2]
                added = uri if path is None else f"{path}#{lines}" if lines else path
                data = content.encode("utf-8", "replace")
                if len(data) > FILE_BYTES:
                    part = f"the first {FILE_BYTES:,} of {len(data):,} bytes"
                    notices.append(f"{added} was cut: {part} are attached.")
                    content = f"{data[:FILE_BYTES].decode('utf-8', 'ignore')}\n[cut: {part}]"
                attachments.append(Attachment(added, content))
            case (
                schema.ImageContentBlock(data=data, uri=uri)
                | schema.EmbeddedResourceContentBlock(
                    resource=schema.BlobResourceContents(blob=data, uri=uri)
                )
            ):
                name = _file_name(uri or "") or f"image {len(attachments) + 1}"
                try:
                    attachments.append(attached(image_of_base64(data, name)))
                except ToolError as error:
                    notices.append(f"{name} was not attached: {error.message}")
                continue
            case _:
                notices.append(
                    f"Content of the type {block.type} was not attached; only text and images are supported."
                )
                continue
        needs_space = text and not text[-1].isspace() and _WORD.match(added)
        text += f" {added}" if needs_space else added
    if not text.strip():
        text = " ".join(attachment.text for attachment in attachments if attachment.image)
    return text, attachments, notices


def _file_name(uri: str) -> str:
    """Return the last part of an address, without control characters; empty if it is invalid."""
    try:
        return visible_line(unquote(urlsplit(uri).path).rpartition("/")[2])
    except ValueError:
        return ""


def _workspace_path(root: str, uri: str) -> str | None:
    """Return a file's path relative to the workspace; None if it is outside."""
    try:
        parts = urlsplit(uri)
        if parts.scheme not in ("", "file") or not parts.path.startswith("/"):
            return None
        path = os.path.relpath(os.path.realpath(unquote(parts.path)), root)
    except ValueError:  # an invalid address or path
        return None
    return None if path == os.pardir or path.startswith(os.pardir + os.sep) else path
