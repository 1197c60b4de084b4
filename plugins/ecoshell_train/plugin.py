"""The hooks of the package: commands, the judge `classifier` and the apprentice."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ecoshell.messages import Call, Observation
from ecoshell.planning.judging import Verdict
from ecoshell.plugins import Command, command_in, hookimpl

if TYPE_CHECKING:
    from ecoshell.models.observed import ReplyObserver
    from ecoshell.paths import Paths


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands."""
    return [
        command_in(
            "ecoshell_train.command", "train", "train local models for the requests of this shell"
        ),
        command_in(
            "ecoshell_train.classifier_command",
            "experience train",
            "train a classifier on the results you marked",
        ),
        command_in(
            "ecoshell_train.agreement_command",
            "experience apprentice",
            "compare the calls of the apprentice with those of paid models",
        ),
    ]


@hookimpl
def judges() -> dict[str, Callable[[str, Call, Observation], Verdict]]:
    """Return the judge that `ecoshell experience train` creates."""
    from ecoshell.paths import user_paths
    from ecoshell_train.classifier import TrainedJudge

    return {"classifier": TrainedJudge(user_paths().judge_file).judge}


@hookimpl
def reply_observers(paths: "Paths", settings: Mapping[str, Any]) -> "Mapping[str, ReplyObserver]":
    """Return the apprentice that `[plugins.train] apprentice` names."""
    if not settings:
        return {}
    from ecoshell_train.apprentice import apprentice_of

    apprentice = apprentice_of(settings, paths)
    return {} if apprentice is None else {"apprentice": apprentice}
