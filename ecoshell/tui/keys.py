"""Keys in the order they were typed."""

from textual.events import Key
from textual.widget import Widget
from textual.widgets import Input


async def act_at_once(widget: Widget, key: str) -> bool:
    """Do now what a key that this widget binds does; says whether it binds it.

    Left to bubble to the app, the key would act after all that came in the same packet, as over a slow line: letters
    typed after a backspace would be taken away by it.
    """
    bound = widget.screen.active_bindings.get(key)
    if bound is None or bound.node is not widget or not bound.enabled:
        return False
    await widget.run_action(bound.binding.action)
    return True


class Field(Input):
    """A line to type in, whose keys act in the order they were typed."""

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()
