"""The models one could go on with: where they run, what they cost, and whether they could be asked now."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from ecoshell.budget.price import Price, plain
from ecoshell.errors import StoreError, UsageError
from ecoshell.models.base import ModelRow, size
from ecoshell.tui.screens.picker import Aside, Picker, PickerColumn, PickerRow
from ecoshell.tui.text import tokens

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

IN_USE = "in use"


class ModelPicker(Picker[ModelRow]):
    """Gives back the slash command that changes the model."""

    HEADING = "models"
    COLUMNS = (
        PickerColumn("model"),
        PickerColumn("where", from_width=90),
        PickerColumn("in $/M", right=True),
        PickerColumn("out $/M", right=True),
        PickerColumn("context", right=True, from_width=70),
        PickerColumn("state"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "use it")]

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell
        self._current = ""

    async def load(self) -> Sequence[ModelRow]:
        """Every model; those that are at hand are listed before anything is typed."""
        self._current = (await self._shell.standing()).model
        return await self._shell.models()

    def key(self, item: ModelRow) -> str:
        return item.name

    def first(self) -> str:
        return self._current

    def row(self, item: ModelRow) -> PickerRow:
        state = IN_USE if item.name == self._current else item.state
        size = tokens(item.context) if item.context else "?"
        where = item.place or item.provider
        cells = (item.name, where, *_rates(item.price), size, state)
        return PickerRow(
            cells, also=f"{item.provider} {item.place} {state}", common=item.at_hand or item.name == self._current
        )

    def detail(self, item: ModelRow) -> str:
        """The whole name, the price with what is cached, and what is missing or else the sizes and the file."""
        price = "price unknown: a cap in dollars refuses it" if item.price is None else item.price.summary()
        source = f" ({item.price.source})" if item.price and item.price.source else ""
        context = f"context {item.context:,}" if item.context else "context unknown"
        most = f" · answers up to {item.max_output:,} tokens" if item.max_output else ""
        sizes = " · ".join(part for part in (f"{context}{most}", size(item.size_bytes), str(item.path or "")) if part)
        trouble = f"blocked: {item.barred}" if item.barred else item.missing
        return f"{item.name}\n{price}{source}\n{trouble or sizes}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a key is asked for, nothing else can be chosen."""
        return not (action == "choose" and self.query_one(Aside).is_open)

    def result(self, item: ModelRow) -> str | None:
        if item.ready is False and item.kind == "remote":
            self.run_worker(self._ask_for_key(item), group="key", exclusive=True)
            return None
        if item.ready is False:
            self.complain(f"{item.name} cannot be asked yet: {item.state}.\n{item.missing}")
            return None
        return f"/model {item.name}"

    async def _ask_for_key(self, item: ModelRow) -> None:
        """Have the provider's key typed, store it, and take the model."""
        asked = f"{item.name} needs a key of {item.provider}. Paste it; it goes to the system's keyring (esc: back)."
        key = await self.query_one(Aside).text(f"{asked}\nOr: {item.missing}", secret=True)
        if not key:
            return
        try:
            await self._shell.keep_key(item.provider, key)
        except StoreError as error:
            self.notify(str(error), severity="warning", timeout=20, markup=False)
        except UsageError as error:
            self.complain(str(error))
            return
        self.dismiss(f"/model {item.name}")


def _rates(price: Price | None) -> tuple[str, str]:
    """What a million tokens cost, in and out."""
    if price is None:
        return "?", "?"
    if price.summary() == "free":
        return "free", "free"
    return _short(price.rates.input), _short(price.rates.output)


def _short(rate: Decimal) -> str:
    """Four digits say enough of a price in a list."""
    return plain(Decimal(f"{rate:.4g}"))
