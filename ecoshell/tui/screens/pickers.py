"""Pickers of sessions, models and themes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from ecoshell.budget import about, counted, plain
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.models import ModelRow, size_text
from ecoshell.tui.screens.picker import AskPane, Picker, PickerColumn, PickerRow
from ecoshell.tui.text import money, tokens
from ecoshell.tui.themes import FileTheme, ThemedApp

if TYPE_CHECKING:
    from ecoshell.agent.archive import SessionRow
    from ecoshell.agent.shell import Shell

NEW = "/new"
_CURRENT = "This is the current session; start or resume another one before deleting it."


class SessionPicker(Picker["SessionRow"]):
    """Returns the slash command that resumes or starts a session."""

    heading = "sessions"
    BLOCKED_WHILE_ASKING = frozenset({"choose", "new", "on_highlighted"})
    NOTHING = "No sessions yet; a session is listed after its first question."
    COLUMNS = (
        PickerColumn("title"),
        PickerColumn("last used"),
        PickerColumn("model", from_width=80),
        PickerColumn("spent", right=True, from_width=56),
        PickerColumn("", from_width=40),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "resume"),
        Binding("f2,r", "on_highlighted('rename')", "rename"),
        Binding("delete,f8,d", "on_highlighted('remove')", "delete"),
        Binding("f4,e", "on_highlighted('export')", "export"),
        Binding("ctrl+n,n", "new", "new"),
    ]

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell

    async def load(self) -> "Sequence[PickerRow[SessionRow]]":
        rows: list[PickerRow[SessionRow]] = []
        for item in await self._shell.archive.rows():
            info, mark = item.info, "this one" if item.current else ""
            title = info.title or "(no question yet)"
            cost = about(money(item.spent_nano), estimated=item.estimated)
            cells = (title, info.updated_text, info.model, cost, mark)
            took = f"{counted(item.calls, 'model call')} · {cost} · {info.model}"
            detail = f"{title}\n{info.id} · {info.workspace}\n{took}"
            also = f"{info.id} {info.model} {info.workspace}"
            rows.append(PickerRow(item, info.id, cells, also, detail=detail))
        return rows

    def result(self, item: "SessionRow") -> str | None:
        if item.current:
            self.complain("This is the current session; esc returns to it.")
            return None
        return f"/resume {item.info.id}"

    def action_new(self) -> None:
        self.dismiss(NEW)

    @work
    async def action_on_highlighted(self, action: Literal["rename", "remove", "export"]) -> None:
        """Ask for confirmation or a name, then run the action; errors are shown."""
        highlighted, pane, archive = self.highlighted, self.query_one(AskPane), self._shell.archive
        if highlighted is None:
            return
        row, title = highlighted.item, highlighted.cells[0]
        try:
            if action == "rename":
                new_title = await pane.ask("The session's title:", row.info.title)
                if new_title is not None:
                    await archive.rename(row.info.id, new_title)
                    self.reload()
            elif action == "export":
                question = "Export to a new file (.md to read, .json for programs):"
                name = await pane.ask(question, f"{row.info.id}.md")
                if name is not None and name.strip():
                    file = archive.file(name)
                    await archive.export(row.info.id, file)
                    self.complain(f"Exported to {file}.")
            elif row.current:
                self.complain(_CURRENT)
            elif await pane.ask(f"Delete “{title}” with its whole history? This cannot be undone."):
                await archive.delete(row.info.id)
                self.reload()
        except EcoshellError as error:
            self.complain(str(error))


IN_USE = "in use"


class ModelSource(Protocol):
    """Knows all models and stores keys: a shell, or what takes its place before one is open."""

    @property
    def model_name(self) -> str:
        """The model in use; empty before a shell is open."""
        ...

    async def models(self) -> Sequence[ModelRow]:
        """All available models; raises EcoshellError."""
        ...

    async def store_key(self, provider: str, key: str) -> None:
        """Store a provider's key; raises UsageError and StoreError."""
        ...


class ModelPicker(Picker[ModelRow]):
    """Returns the slash command that changes the model."""

    heading = "models"
    COLUMNS = (
        PickerColumn("model"),
        PickerColumn("where", from_width=90),
        PickerColumn("in $/M", right=True),
        PickerColumn("out $/M", right=True),
        PickerColumn("context", right=True, from_width=70),
        PickerColumn("state"),
    )
    BLOCKED_WHILE_ASKING = frozenset({"choose"})
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "use or download")]

    def __init__(self, source: ModelSource) -> None:
        super().__init__()
        self._source = source

    async def load(self) -> Sequence[PickerRow[ModelRow]]:
        self.first = self._source.model_name
        rows: list[PickerRow[ModelRow]] = []
        for item in await self._source.models():
            current = item.name == self.first
            state = IN_USE if current else item.state
            input_price, output_price = "?", "?"
            price = "price unknown: refused under a cap in dollars"
            if item.price is not None:
                price = item.price.summary()
                rates = (item.price.rates.input, item.price.rates.output)
                input_price, output_price = (
                    "free" if price == "free" else plain(Decimal(f"{rate:.4g}")) for rate in rates
                )
                price += f" ({item.price.source})" if item.price.source else ""
            context = tokens(item.context) if item.context else "?"
            place = item.place or item.provider
            cells = (item.name, place, input_price, output_price, context, state)
            output_limit = f" · answers up to {item.max_output:,} tokens" if item.max_output else ""
            size = f"{item.context:,}" if item.context else "unknown"
            file = item.path.name if item.path else ""
            sizes = (f"context {size}{output_limit}", size_text(item.size_bytes), file)
            trouble = f"blocked: {item.blocked}" if item.blocked else item.missing
            detail = f"{item.name}\n{price}\n{trouble or ' · '.join(filter(None, sizes))}"
            also = f"{item.provider} {item.place} {state}"
            rows.append(PickerRow(item, item.name, cells, also, item.at_hand or current, detail))
        return rows

    def result(self, item: ModelRow) -> str | None:
        if item.ready is False and item.kind == "remote":
            self._ask_for_key(item)
            return None
        if item.kind == "hub":
            return f"/model pull {item.name.removeprefix('hf:')}"
        if item.ready is False:
            self.complain(f"{item.name} cannot be used yet: {item.state}.\n{item.missing}")
            return None
        return f"/model {item.name}"

    @work(group="key", exclusive=True)
    async def _ask_for_key(self, item: ModelRow) -> None:
        """Ask for the provider's key, store it, and select the model."""
        question = (
            f"{item.name} needs a key for {item.provider}. "
            "Paste it to store it in the system keyring (esc: back)."
        )
        key = await self.query_one(AskPane).ask(f"{question}\nOr: {item.missing}", "", secret=True)
        if not key:
            return
        try:
            await self._source.store_key(item.provider, key)
        except StoreError as error:
            self.notify(str(error), severity="warning", timeout=20, markup=False)
        except UsageError as error:
            self.complain(str(error))
            return
        self.dismiss(f"/model {item.name}")


NO_COLOR = "Colours are off: NO_COLOR is set, or the terminal has none. The theme applies where colours are available."


class ThemePicker(Picker[FileTheme]):
    """Previews the highlighted theme; esc restores the previous one."""

    heading = "theme"
    COLUMNS = (PickerColumn("theme"), PickerColumn("kind"))
    NOTHING = "No themes."
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "keep it")]
    HELP = "The highlighted theme is previewed. Enter stores it in the settings, esc restores the previous one."
    DEFAULT_CSS = """
    ThemePicker {
        align: right top;
        background: transparent;
        & > Vertical, &.-narrow > Vertical { width: 38; height: 100%; }
        #detail { height: 6; }
    }
    """
    app: ThemedApp[int]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = self.first = current
        """The theme to apply when the picker closes."""

    async def load(self) -> Sequence[PickerRow[FileTheme]]:
        themes = await self.app.reload_themes()
        rows: list[PickerRow[FileTheme]] = []
        for theme in sorted(themes.all, key=lambda theme: theme.name):
            kind = "no colour" if theme.colorless else "dark" if theme.dark else "light"
            detail = NO_COLOR if self.app.forced_mono else ""
            rows.append(PickerRow(theme, theme.name, (theme.name, kind), detail=detail))
        for complaint in themes.complaints:
            self.notify(complaint, severity="warning", markup=False)
        return rows

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self.highlighted is not None:
            self.app.apply_theme(self.highlighted.item.name)

    def result(self, item: FileTheme) -> str:
        self._current = item.name
        return item.name

    def on_unmount(self) -> None:
        """Apply the selected theme, or the previous one."""
        self.app.apply_theme(self._current)
