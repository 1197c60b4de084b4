"""The prompt app as a process on a real terminal; it writes sent drafts to `sent.jsonl` in the given folder."""

import dataclasses
import json
import sys
from pathlib import Path

from prompt_play import PromptApp
from textual.driver import Driver

from ecoshell.tui.prompt.drafts import Draft
from ecoshell.tui.terminal import TerminalDriver


class PromptProcess(PromptApp):
    """Ends when `quit` is sent."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sent_file = folder / "sent.jsonl"

    def get_driver_class(self) -> type[Driver]:
        """Use the driver of the chat."""
        return TerminalDriver

    def send(self, draft: Draft) -> None:
        """Append the draft to the file."""
        super().send(draft)
        with self._sent_file.open("a") as out:
            out.write(json.dumps(dataclasses.asdict(draft)) + "\n")
        if draft.text == "quit":
            self.exit()


if __name__ == "__main__":
    PromptProcess(Path(sys.argv[1])).run()
