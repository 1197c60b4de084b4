"""The settings screen: every setting with its source, and a control to change it in place."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ecoshell.errors import EcoshellError, SettingsError
from ecoshell.messages import visible_line
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.tui.screens.picker import (
    AnswerInput,
    AskPane,
    ChoicePicker,
    Picker,
    PickerColumn,
    PickerRow,
)
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.themes import DEFAULT as DEFAULT_THEME
from ecoshell.tui.themes import ThemedApp

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell
    from ecoshell.settings.overview import Overview, SettingRow
    from ecoshell.settings.schema import Settings

Key = tuple[str, ...]
THEME: Key = ("tui", "theme")
_MAX_VALUE_LENGTH = 26
_IMMEDIATELY, _AFTER_RESTART = "applies immediately", "applies after a restart"
_UNSET = "–"


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings a running shell can adopt; `apply` returns whether it did."""

    keys: frozenset[Key] = frozenset()
    apply: "Callable[[Settings, Key], Awaitable[bool]] | None" = None
    choices: Mapping[Key, Sequence[str]] = field(default_factory=dict[Key, Sequence[str]])
    """Choices of settings that plugins extend."""


def live_settings(shell: "Shell", options: Options) -> LiveSettings:
    """The settings this shell can adopt, and the names it knows."""
    from ecoshell.agent.judge import JUDGES
    from ecoshell.assembly.live import AT_ONCE, apply

    choices = {
        ("agent", "strategy"): tuple(shell.deps.strategies),
        ("plan", "judge"): (*JUDGES, *shell.deps.judge.more),
    }
    return LiveSettings(
        AT_ONCE, lambda settings, key: apply(shell, settings, key, options), choices
    )


class SettingsScreen(Picker["SettingRow | None"]):
    """Every valid change is written to the user's settings file at once.

    A row without a setting is a heading or an error.
    """

    heading = "settings"
    COLUMNS = (PickerColumn("setting"), PickerColumn("value"), PickerColumn("from", from_width=76))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "change"),
        Binding("delete,f8", "restore", "default", key_display="del"),
        Binding("f6", "name_model", "add a model"),
    ]
    HELP = (
        "Type to search. Enter changes the highlighted setting: it switches, offers a choice or asks for a text. "
        "Delete restores its default. F6 adds a model, to set its price, context or address."
    )
    DEFAULT_CSS = """
    SettingsScreen #detail { height: 6; }
    """
    app: ThemedApp[int]

    def __init__(self, paths: Paths, live: LiveSettings | None = None) -> None:
        super().__init__()
        self._file = paths.settings_file
        self._live = live or LiveSettings()
        self._overview: Overview | None = None
        self._models: tuple[str, ...] = ()
        """Models named here without any setting yet."""
        self._edited: SettingRow | None = None
        self._last_change: tuple[str, str] = ("", "")
        """The key that was written last, and a message about it."""

    async def load(self) -> "Sequence[PickerRow[SettingRow | None]]":
        """The settings by section, or the errors in the settings file."""
        self._overview, words = await asyncio.to_thread(self._read)
        file, short = str(self._file), self._file.name
        rows: list[PickerRow[SettingRow | None]] = []
        for problem in self._overview.problems:
            cells = (problem.message.replace(file, short), "", "")
            detail = f"{problem.message}\n{problem.fix}"
            rows.append(PickerRow(None, problem.message, cells, detail=detail))
        section = ""
        for row in () if rows else self._overview.rows:
            name = row.path[0] if len(row.path) > 1 else ""
            if name != section:
                section = name
                title = f"── {name} ──"
                rows.append(PickerRow(None, title, (title, "", ""), detail=words.get(name, "")))
            origin = "" if row.origin == "default" else row.origin.replace(file, short)
            effect = _AFTER_RESTART
            if row.variable:
                effect = "overridden by the environment"
            elif row.path == THEME or row.path in self._live.keys:
                effect = _IMMEDIATELY
            facts = f"default {row.default or 'none'} · {origin or 'not set'} · {effect}"
            key, message = self._last_change
            detail = f"{row.description.text}\n{facts}\n{message if key == row.key else ''}"
            value = visible_line(row.value or row.default or _UNSET, _MAX_VALUE_LENGTH)
            cells = (row.key, value, origin)
            rows.append(PickerRow(row, row.key, cells, row.description.text, detail=detail))
        return rows

    def result(self, item: "SettingRow | None") -> str | None:
        """Change the setting; the picker stays open."""
        if item is not None:
            self._change(item)
        return None

    def action_restore(self) -> None:
        if self.highlighted is not None and self.highlighted.item is not None:
            self._change(self.highlighted.item, default=True)

    def _change(self, row: "SettingRow", *, default: bool = False) -> None:
        """Change a setting unless the environment overrides it."""
        if row.variable:
            self.complain(f"{row.variable} overrides the file: change it there, or unset it first.")
        else:
            self._edit(row, default=default)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show at once whether the typed value is valid."""
        if isinstance(event.input, AnswerInput) and self._edited is not None:
            event.stop()
            self.query_one(AskPane).show_question(self._prompt_for(self._edited, event.value))

    def _read(self) -> "tuple[Overview, dict[str, str]]":
        from ecoshell.settings import section_descriptions
        from ecoshell.settings.overview import overview

        return overview(self._file, os.environ, self._models), dict(section_descriptions())

    @work(group="edit", exclusive=True)
    async def _edit(self, row: "SettingRow", *, default: bool = False) -> None:
        """Reset a setting, or change it with a suitable control."""
        choices = self._live.choices.get(row.path, row.description.choices)
        if default:
            await self._write(row, None)
        elif row.description.kind == "switch":
            await self._write(row, "false" if (row.value or row.default) == "true" else "true")
        elif row.path == THEME:
            await self._pick(row, ThemePicker(self.app.theme))
        elif choices:
            await self._pick(row, ChoicePicker(row.key, choices, row.value or row.default))
        else:  # ask for a text until it can be written or the user cancels
            typed: str | None = row.value
            self._edited = row
            try:
                while typed is not None:
                    typed = await self.query_one(AskPane).ask(self._prompt_for(row, typed), typed)
                    if typed is not None and await self._write(row, typed):
                        return
            finally:
                self._edited = None

    async def _pick(self, row: "SettingRow", picker: Picker[Any]) -> None:
        if (chosen := await self.app.push_screen_wait(picker)) is not None:
            await self._write(row, chosen)

    def _prompt_for(self, row: "SettingRow", typed: str) -> str:
        """The key and the expected form, or why the typed value is invalid."""
        problem = ""
        if self._overview is not None:
            try:
                problem = self._overview.complaint(row.changes(typed))
            except SettingsError as error:
                problem = str(error)
        if problem:
            return f"{row.key}\n× {problem}"
        if row.description.kind == "list":
            return f'{row.key}\na list such as ["read_file", "run_command:git status*"]; empty restores the default'
        return f"{row.key}\nenter stores it, empty restores the default, esc cancels"

    @work(group="edit", exclusive=True)
    async def action_name_model(self) -> None:
        name = await self.query_one(AskPane).ask("The model's name, as in openai/my-model", "")
        if name and name.strip():
            self._models = (*self._models, name.strip())
            self.reload()

    async def _write(self, row: "SettingRow", typed: str | None) -> bool:
        """Write a setting and apply it if possible; return whether it was written."""
        try:
            edit: Any = await asyncio.to_thread(import_module, "ecoshell.settings.edit")
            settings: Settings = await asyncio.to_thread(
                edit.write_settings, self._file, row.changes(typed)
            )
        except SettingsError as problem:
            self.complain(str(problem))
            return False
        message = f"√ written; it {_AFTER_RESTART}"
        if row.path == THEME:
            self.app.apply_theme(settings.tui.theme or DEFAULT_THEME)
            message = f"√ written; it {_IMMEDIATELY}"
        elif self._live.apply is not None and row.path in self._live.keys:
            try:
                applied = await self._live.apply(settings, row.path)
                message = f"√ written; it {_IMMEDIATELY if applied else _AFTER_RESTART}"
            except EcoshellError as error:
                message = f"√ written, but was not applied: {error}"
        self._last_change = (row.key, message)
        self.reload()
        return True
