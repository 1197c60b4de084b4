"""The schema screen: a tool's description, arguments, cost, registration and plan row."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Static

from ecoshell.errors import EcoshellError
from ecoshell.messages import Effect, visible, visible_line
from ecoshell.tui.screens.picker import Overlay
from ecoshell.tui.text import money

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell
    from ecoshell.agent.shell_status import ToolDetails

_SECONDARY = "$foreground-muted"
_BY = {
    "agent": "by the agent",
    "first_call": "by its first call",
    "user": "by you",
    "upfront": "from the start of a turn",
}

_PERMISSIONS: Mapping[Effect, str] = {
    "read": "read files",
    "write": "write files",
    "execute": "run commands",
    "network": "use the network",
}


class SchemaScreen(Overlay):
    """Returns the slash command that registers or unregisters the tool, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "switch('register')", "register"),
        Binding("u", "switch('unregister')", "unregister"),
        Binding("s", "schema", "JSON schema"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    SchemaScreen {
        & > Vertical { max-width: 110; }
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
        VerticalScroll > Static { margin-bottom: 1; }
        #schema { display: none; }
        &.-schema #schema { display: block; }
    }
    """

    def __init__(self, shell: "Shell", tool: str, *, planned: bool = False) -> None:
        """With `planned`, show the arithmetic of the tool's plan row above the schema."""
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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to register or unregister, whichever applies."""
        if action in ("switch", "schema") and self._tool_details is None:
            return False
        if action == "switch":
            return bool(self._tool_details and self._tool_details.by) == (
                parameters == ("unregister",)
            )
        return True

    def action_switch(self, verb: str) -> None:
        self.dismiss(f"/{verb} {self._tool}")

    def action_schema(self) -> None:
        self.toggle_class("-schema")
        if self.has_class("-schema"):
            self.call_after_refresh(
                self.query_one("#schema").scroll_visible, animate=False, top=True
            )

    @work
    async def on_mount(self) -> None:
        """Read the tool's details and, if requested, its plan row."""
        self.query_one(VerticalScroll).focus()
        try:
            self._tool_details = await self._shell.tool_details(self._tool)
        except EcoshellError as error:
            self.query_one("#about", Static).update(visible(str(error)))
        else:
            self._show(self._tool_details)
            self.refresh_bindings()
        if self._planned:  # after the details: a command waits for earlier ones
            try:
                text = (await self._shell.command(f"/plan why {self._tool}")).text
            except EcoshellError as error:
                text = str(error)
            self.query_one("#plan", Static).update(
                Content.assemble(("The plan\n", "bold"), visible(text))
            )

    def _show(self, tool: "ToolDetails") -> None:
        tool_schema = tool.schema
        registration = "known by name only"
        if tool.by:
            registration = f"registered {_BY.get(tool.by, tool.by)}"
            if (since := tool.since) is not None:
                turn = f" · turn {since.turn}" if since.turn else ""
                step = f", step {since.step}" if since.step else ""
                registration += f" · {datetime.fromtimestamp(since.at):%Y-%m-%d %H:%M}{turn}{step}"
        size = f"{'' if tool.exact else '≈ '}{tool.tokens:,} tokens while it is registered"
        cost = f"{money(tool.price_nano)} a use" if tool.price_nano else "costs nothing to use"
        source = (
            f"from the server {visible_line(tool_schema.server)}"
            if tool_schema.server
            else "comes with ecoshell"
        )
        effects = ", ".join(_PERMISSIONS[effect] for effect in tool.effects)
        about = [
            Content(visible(tool_schema.description)),
            Content(""),
            Content.assemble(("● ", "$success") if tool.by else ("○ ", _SECONDARY), registration),
            Content(f"{size} · {cost}"),
            Content(f"{source} · {f'may {effects}' if effects else 'has no side effects'}"),
        ]
        if tool.why:
            about.append(Content.styled(visible(tool.why), _SECONDARY))
        if tool.skill:
            about[3:5] = [Content(size)]
        self.query_one("#about", Static).update(Content("\n").join(about))
        if tool.skill:
            self.query_one("#arguments", Static).update(visible(tool.skill))
            return
        properties: Mapping[str, Any] = tool_schema.parameters.get("properties") or {}
        required: Sequence[str] = tool_schema.parameters.get("required") or ()
        arguments = [Content.styled("Arguments" if properties else "Takes no arguments.", "bold")]
        for name, schema in properties.items():
            details: Mapping[str, Any] = (
                cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
            )
            marks = f"{visible_line(str(details.get('type', 'any')))}{'' if name in required else ', optional'}"
            arguments.append(
                Content.assemble("  ", (visible_line(name), "$primary"), "  ", (marks, _SECONDARY))
            )
            if words := str(details.get("description") or ""):
                arguments.append(Content(f"    {visible_line(words)}"))
        self.query_one("#arguments", Static).update(Content("\n").join(arguments))
        schema_text = json.dumps(dict(tool_schema.parameters), indent=2, ensure_ascii=False)
        self.query_one("#schema", Static).update(f"JSON schema\n{visible(schema_text)}")
