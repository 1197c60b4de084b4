"""A tool's document: what it is for, its arguments, what it takes of the context, why it is registered or planned."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Static

from ecoshell.errors import EcoshellError
from ecoshell.messages import Effect, ToolDocument
from ecoshell.tui.screens.picker import Overlay
from ecoshell.tui.text import money
from ecoshell.untrusted import visible, visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell, ToolDetails

_QUIET = "$foreground-muted"
_BY = {"agent": "by the agent", "user": "by you", "upfront": "from the start of a turn"}

_MAY: Mapping[Effect, str] = {
    "read": "read files",
    "write": "write files",
    "execute": "run commands",
    "network": "use the network",
}


class DocumentScreen(Overlay):
    """Gives back the slash command that registers or unregisters the tool, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "switch('register')", "register"),
        Binding("u", "switch('unregister')", "unregister"),
        Binding("s", "schema", "JSON schema"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    DocumentScreen {
        & > Vertical { max-width: 110; }
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
        VerticalScroll > Static { margin-bottom: 1; }
        #schema { display: none; }
        &.-schema #schema { display: block; }
    }
    """

    def __init__(self, shell: "Shell", tool: str, *, planned: bool = False) -> None:
        """With `planned`, the arithmetic of the tool's row in the plan stands above the document."""
        super().__init__()
        self._planned = planned
        self._shell = shell
        self._tool = tool
        self._tool_details: ToolDetails | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(visible_line(self._tool))
            with VerticalScroll():
                if self._planned:
                    yield Static("planning …", id="plan", markup=False)
                yield Static("reading …", id="about", markup=False)
                yield Static("", id="arguments", markup=False)
                yield Static("", id="schema", markup=False)
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self.run_worker(self._read())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to register what is not registered, and the other way round."""
        if action in ("switch", "schema") and self._tool_details is None:
            return False
        if action == "switch":
            return bool(self._tool_details and self._tool_details.by) == (parameters == ("unregister",))
        return True

    def action_switch(self, verb: str) -> None:
        self.dismiss(f"/{verb} {self._tool}")

    def action_schema(self) -> None:
        self.toggle_class("-schema")
        if self.has_class("-schema"):
            self.call_after_refresh(self.query_one("#schema").scroll_visible, animate=False, top=True)

    async def _read(self) -> None:
        about = self.query_one("#about", Static)
        try:
            tool_details = await self._shell.tool_details(self._tool)
        except EcoshellError as error:
            about.update(visible(str(error)))
        else:
            self._tool_details = tool_details
            about.update(Content("\n").join(_about(tool_details)))
            self.query_one("#arguments", Static).update(Content("\n").join(_arguments(tool_details.document)))
            schema = json.dumps(dict(tool_details.document.parameters), indent=2, ensure_ascii=False)
            self.query_one("#schema", Static).update(f"JSON schema\n{visible(schema)}")
            self.refresh_bindings()
        if self._planned:  # a command waits for those before it, the document for none
            try:
                told = (await self._shell.command(f"/plan why {self._tool}")).text
            except EcoshellError as error:
                told = str(error)
            self.query_one("#plan", Static).update(Content.assemble(("The plan\n", "bold"), visible(told)))


def _about(tool_details: "ToolDetails") -> Iterator[Content]:
    document = tool_details.document
    yield Content(visible(document.description))
    yield Content("")
    standing = "known by name only"
    if tool_details.by:  # whether, by whom and since when it is registered
        standing = f"registered {_BY.get(tool_details.by, tool_details.by)}"
        if (since := tool_details.since) is not None:
            where = f" · turn {since.turn}" if since.turn else ""
            step = f", step {since.step}" if since.step else ""
            standing += f" · {datetime.fromtimestamp(since.at):%Y-%m-%d %H:%M}{where}{step}"
    sign = ("● ", "$success") if tool_details.by else ("○ ", _QUIET)
    yield Content.assemble(sign, standing)
    size = f"{'' if tool_details.exact else '≈ '}{tool_details.tokens:,} tokens while it is registered"
    cost = f"{money(tool_details.price_nano)} a use" if tool_details.price_nano else "costs nothing to use"
    yield Content(f"{size} · {cost}")
    source = f"from the server {visible_line(document.server)}" if document.server else "comes with ecoshell"
    effects = ", ".join(_MAY[effect] for effect in tool_details.effects)
    yield Content(f"{source} · {f'may {effects}' if effects else 'does nothing but answer'}")
    if tool_details.why:
        yield Content.styled(visible(tool_details.why), _QUIET)


def _arguments(document: ToolDocument) -> Iterator[Content]:
    """Each argument with its type, whether it may be left out, and what it is for."""
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    required: Sequence[str] = document.parameters.get("required") or ()
    yield Content.styled("Arguments" if properties else "Takes no arguments.", "bold")
    for name, schema in properties.items():
        known: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        kind = known.get("type", "any")
        marks = f"{visible_line(str(kind))}{'' if name in required else ', optional'}"
        yield Content.assemble("  ", (visible_line(name), "$primary"), "  ", (marks, _QUIET))
        if about := str(known.get("description") or ""):
            yield Content(f"    {visible_line(about)}")
