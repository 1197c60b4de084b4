"""All tools known to a session, by unique name."""

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ecoshell.errors import ToolError
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell.tools.base import Tool


class Catalog:
    """Tools by name, in the order given; a name that two servers share is qualified with the server's."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._documents: dict[str, ToolDocument] = {}
        tools = list(tools)
        shared = {name for name, count in Counter(tool.document.name for tool in tools).items() if count > 1}
        for tool in tools:
            document = tool.document
            name = (
                f"{document.server}.{document.name}" if document.name in shared and document.server else document.name
            )
            if name in self._tools or name in META_TOOLS:
                raise ToolError(f"two tools are called {name}", fix="give one of them another name")
            self._tools[name] = tool
            self._documents[name] = replace(document, name=name)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        return tuple(self._documents.values())

    def tool(self, name: str) -> Tool:
        """The tool of this name; KeyError when unknown."""
        return self._tools[name]

    def document(self, name: str) -> ToolDocument:
        """The document of the tool of this name; KeyError when unknown."""
        return self._documents[name]

    def closest(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Known names that look most like this one, best first."""
        lowered = {known.lower(): known for known in self._tools}
        inside = [known for low, known in lowered.items() if name and (name.lower() in low or low in name.lower())]
        alike = [lowered[low] for low in difflib.get_close_matches(name.lower(), lowered, n=limit, cutoff=0.5)]
        return tuple(dict.fromkeys([*alike, *inside]))[:limit]
