"""The settings screen: every setting by section, where its value comes from, and a control to change it in place."""

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
from ecoshell.tui.screens.picker import Aside, ChoicePicker, Line, Picker, PickerColumn, PickerRow
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.themes import DEFAULT as DEFAULT_THEME
from ecoshell.tui.themes import ThemedApp

if TYPE_CHECKING:  # pydantic comes with some of them
    from ecoshell.agent.shell import Shell
    from ecoshell.settings.overview import Overview, SettingRow
    from ecoshell.settings.schema import Settings

Key = tuple[str, ...]
THEME: Key = ("tui", "theme")
_WIDEST = 26
_AT_ONCE, _LATER = "holds at once", "holds when ecoshell starts again"
_UNSET = "–"


@dataclass(frozen=True, slots=True)
class Running:
    """What runs and could take up a changed setting: which keys it does, and how; says whether it did."""

    keys: frozenset[Key] = frozenset()
    apply: "Callable[[Settings, Key], Awaitable[bool]] | None" = None
    choices: Mapping[Key, Sequence[str]] = field(default_factory=dict[Key, Sequence[str]])
    """Of settings that may name what a plugin brings."""


def running(shell: "Shell", options: Options) -> Running:
    """What a running shell takes up, and knows by name."""
    from ecoshell.agent.dependencies import JUDGES
    from ecoshell.assembly.live import AT_ONCE, apply

    choices = {
        ("agent", "strategy"): tuple(shell.deps.strategies),
        ("plan", "judge"): (*JUDGES, *shell.deps.judge.more),
    }
    return Running(AT_ONCE, lambda settings, key: apply(shell, settings, key, options), choices)


class SettingsScreen(Picker["SettingRow | None"]):
    """Changes are written into the person's own file as soon as they are made, and nothing is that is not valid.

    A row that is no setting is a heading, or something that is wrong.
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
        "Delete gives it its default again. F6 names a model, to give it a price, a context or an address."
    )
    DEFAULT_CSS = """
    SettingsScreen #detail { height: 6; }
    """
    app: ThemedApp[int]

    def __init__(self, paths: Paths, what_runs: Running | None = None) -> None:
        super().__init__()
        self._file = paths.settings_file
        self._what_runs = what_runs or Running()
        self._overview: Overview | None = None
        self._models: tuple[str, ...] = ()
        """Models that were named here and have nothing set yet."""
        self._edited: SettingRow | None = None
        self._said: tuple[str, str] = ("", "")
        """The key that was written last, and what came of it."""

    async def load(self) -> "Sequence[PickerRow[SettingRow | None]]":
        """The settings below the headings of their sections; or what is wrong with them."""
        self._overview, words = await asyncio.to_thread(self._read)
        file, short = str(self._file), self._file.name
        rows: list[PickerRow[SettingRow | None]] = [
            PickerRow(None, one.message, (one.message.replace(file, short), "", ""), detail=f"{one.message}\n{one.fix}")
            for one in self._overview.problems
        ]
        section = ""
        for row in () if rows else self._overview.rows:
            name = row.path[0] if len(row.path) > 1 else ""
            if name != section:
                section = name
                title = f"── {name} ──"
                rows.append(PickerRow(None, title, (title, "", ""), detail=words.get(name, "")))
            origin = "" if row.origin == "default" else row.origin.replace(file, short)
            holds = _AT_ONCE if row.path == THEME or row.path in self._what_runs.keys else _LATER
            if row.variable:
                holds = "the environment wins over the file"
            facts = f"default {row.default or 'none'} · {origin or 'not set'} · {holds}"
            key, said = self._said
            told = f"{row.description.text}\n{facts}\n{said if key == row.key else ''}"
            value = visible_line(row.value or row.default or _UNSET, _WIDEST)
            rows.append(PickerRow(row, row.key, (row.key, value, origin), row.description.text, detail=told))
        return rows

    def result(self, item: "SettingRow | None") -> str | None:
        """Nothing is picked here: enter changes what is highlighted."""
        if item is not None:
            self._change(item)
        return None

    def action_restore(self) -> None:
        if self.highlighted is not None and self.highlighted.item is not None:
            self._change(self.highlighted.item, default=True)

    def _change(self, row: "SettingRow", *, default: bool = False) -> None:
        """Change a setting that can be; what is typed for another stays where it cannot."""
        if row.variable:
            self.complain(f"{row.variable} is set and wins over the file: change it there, or unset it first.")
        else:
            self._edit(row, default=default)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say at once whether what is typed for a setting could be written."""
        if isinstance(event.input, Line) and self._edited is not None:
            event.stop()
            self.query_one(Aside).say(self._asked(self._edited, event.value))

    def _read(self) -> "tuple[Overview, dict[str, str]]":
        from ecoshell.settings.overview import overview
        from ecoshell.settings.schema import section_words  # pydantic, here in a thread

        return overview(self._file, os.environ, self._models), dict(section_words())

    @work(group="edit", exclusive=True)
    async def _edit(self, row: "SettingRow", *, default: bool = False) -> None:
        """Give a setting its default, or change it with the control that fits it; says why where it cannot be."""
        now, choices = row.value or row.default, self._what_runs.choices.get(row.path, row.description.choices)
        if default:
            await self._write(row, None)
        elif row.description.kind == "switch":
            await self._write(row, "false" if now == "true" else "true")
        elif row.path == THEME or choices:
            picker = ThemePicker(self.app.theme) if row.path == THEME else ChoicePicker(row.key, choices, now)
            chosen = await self.app.push_screen_wait(picker)
            if chosen is not None:
                await self._write(row, chosen)
        else:  # ask for a text until it can be written or the person goes back
            typed: str | None = row.value
            self._edited = row
            try:
                while typed is not None:
                    typed = await self.query_one(Aside).ask(self._asked(row, typed), typed)
                    if typed is not None and await self._write(row, typed):
                        return
            finally:
                self._edited = None

    def _asked(self, row: "SettingRow", typed: str) -> str:
        """What is asked for: the key and its form, or why what is typed could not be written."""
        wrong = ""
        if self._overview is not None:
            try:
                wrong = self._overview.complaint(row.changes(typed))
            except SettingsError as error:
                wrong = str(error)
        if wrong:
            return f"{row.key}\n× {wrong}"
        if row.description.kind == "list":
            return f'{row.key}\na list such as ["read_file", "run_command:git status*"]; nothing gives the default'
        return f"{row.key}\nenter writes it, nothing gives the default, esc leaves it as it is"

    @work(group="edit", exclusive=True)
    async def action_name_model(self) -> None:
        name = await self.query_one(Aside).ask("The model's name, as in openai/my-model", "")
        if name and name.strip():
            self._models = (*self._models, name.strip())
            self.reload()

    async def _write(self, row: "SettingRow", typed: str | None) -> bool:
        """Write one setting and make it hold where that can be; says whether it was written."""
        try:
            edit: Any = await asyncio.to_thread(import_module, "ecoshell.settings.edit")
            settings: Settings = await asyncio.to_thread(edit.write_settings, self._file, row.changes(typed))
        except SettingsError as wrong:
            self.complain(str(wrong))
            return False
        said = f"√ written; it {_LATER}"
        if row.path == THEME:
            self.app.wear(settings.tui.theme or DEFAULT_THEME)
            said = f"√ written; it {_AT_ONCE}"
        elif self._what_runs.apply is not None and row.path in self._what_runs.keys:
            try:
                taken = await self._what_runs.apply(settings, row.path)
                said = f"√ written; it {_AT_ONCE if taken else _LATER}"
            except EcoshellError as error:
                said = f"√ written, but it does not hold now: {error}"
        self._said = (row.key, said)
        self.reload()
        return True
