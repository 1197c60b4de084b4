"""The schema screen: a tool's description, arguments, cost, registration and plan row."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import work
from textual.binding import Binding, BindingType
from textual.content import Content

from ecoshell.errors import EcoshellError
from ecoshell.messages import Effect, visible, visible_line
from ecoshell.tui.screens.overlay import Sheet
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


class SchemaScreen(Sheet):
    """Returns the slash command that registers or unregisters the tool, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "switch('register')", "register"),
        Binding("u", "switch('unregister')", "unregister"),
        Binding("s", "schema", "JSON schema"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    SchemaScreen {
        #schema { display: none; }
        &.-schema #schema { display: block; }
    }
    """

    def __init__(self, shell: "Shell", tool: str, *, planned: bool = False) -> None:
        """With `planned`, show the arithmetic of the tool's plan row above the schema."""
        plan = {"plan": "planning …"} if planned else {}
        super().__init__(tool, **plan, about="reading …", arguments="", schema="")
        self._planned = planned
        self._shell = shell
        self._tool = tool
        self._tool_details: ToolDetails | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to register or unregister, whichever applies."""
        if action not in ("switch", "schema"):
            return True
        if self._tool_details is None:
            return False
        is_registered = bool(self._tool_details.by)
        return action == "schema" or is_registered == (parameters == ("unregister",))

    def action_switch(self, verb: str) -> None:
        self.dismiss(f"/{verb} {self._tool}")

    def action_schema(self) -> None:
        self.toggle_class("-schema")
        if self.has_class("-schema"):
            scroll = self.query_one("#schema").scroll_visible
            self.call_after_refresh(scroll, animate=False, top=True)

    @work
    async def on_mount(self) -> None:
        """Read the tool's details and, if requested, its plan row."""
        try:
            self._tool_details = await self._shell.tool_details(self._tool)
        except EcoshellError as error:
            self.fill("about", visible(str(error)))
        else:
            self._show(self._tool_details)
            self.refresh_bindings()
        if self._planned:  # after the details: a command waits for earlier ones
            try:
                text = (await self._shell.command(f"/plan why {self._tool}")).text
            except EcoshellError as error:
                text = str(error)
            self.fill("plan", Content.assemble(("The plan\n", "bold"), visible(text)))

    def _show(self, tool: "ToolDetails") -> None:
        tool_schema = tool.schema
        registration = "known by name only"
        if tool.by:
            registration = f"registered {_BY.get(tool.by, tool.by)}"
        size = f"{'' if tool.exact else '≈ '}{tool.tokens:,} tokens while it is registered"
        cost = f"{money(tool.price_nano)} a use" if tool.price_nano else "costs nothing to use"
        server = tool_schema.server
        source = f"from the server {visible_line(server)}" if server else "comes with ecoshell"
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
        self.fill("about", Content("\n").join(about))
        if tool.skill:
            self.fill("arguments", visible(tool.skill))
            return
        properties: Mapping[str, Any] = tool_schema.parameters.get("properties") or {}
        required: Sequence[str] = tool_schema.parameters.get("required") or ()
        arguments = [Content.styled("Arguments" if properties else "Takes no arguments.", "bold")]
        for name, schema in properties.items():
            details: Mapping[str, Any] = {}
            if isinstance(schema, Mapping):
                details = cast("Mapping[str, Any]", schema)
            optional = "" if name in required else ", optional"
            marks = (f"{visible_line(str(details.get('type', 'any')))}{optional}", _SECONDARY)
            arguments.append(Content.assemble("  ", (visible_line(name), "$primary"), "  ", marks))
            if words := str(details.get("description") or ""):
                arguments.append(Content(f"    {visible_line(words)}"))
        self.fill("arguments", Content("\n").join(arguments))
        schema_text = json.dumps(dict(tool_schema.parameters), indent=2, ensure_ascii=False)
        self.fill("schema", f"JSON schema\n{visible(schema_text)}")
