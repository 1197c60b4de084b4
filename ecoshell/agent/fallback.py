"""Replaces a model that is unavailable by the next one of `[models] fallback`, within the caps."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ecoshell.agent.model_set import ActiveModels, replaced
from ecoshell.errors import EcoshellError, ModelError, ModelMissing, ModelUnavailable
from ecoshell.events import Emit, Notice
from ecoshell.options import RoleModels

if TYPE_CHECKING:
    from ecoshell.agent.dependencies import Dependencies

_TAKES_OVER = "{} {} takes over, as [models] fallback says."
_CANNOT_TAKE_OVER = "{} cannot take over for {}. {}"


def first_models(
    make: Callable[[str, RoleModels], ActiveModels],
    session_model: str,
    roles: RoleModels,
    *,
    fallback: Iterable[str],
    notify: Callable[[str], None],
) -> ActiveModels:
    """The models of a new session; a model without its API key is replaced by the next of `fallback`.

    May block; raises as `make` does, with the error of the first model if no other can take over.
    """
    try:
        return make(session_model, roles)
    except ModelMissing as error:
        if not error.key:
            raise
        missing = error
    for name in fallback:
        if name == missing.model:
            continue
        try:
            models = make(*replaced(session_model, roles, missing.model, name))
        except EcoshellError as refusal:
            notify(_CANNOT_TAKE_OVER.format(name, missing.model, refusal))
            continue
        notify(_TAKES_OVER.format(missing.message, name))
        return models
    raise missing


async def fall_back(deps: "Dependencies", error: ModelError, failed: set[str], emit: Emit) -> bool:
    """Whether another model took over after this error; `failed` collects the models not to try again in this turn.

    Nothing changes after an error that another model may meet too, or once a part of the reply was shown.
    """
    if error.shown or not isinstance(error, (ModelUnavailable, ModelMissing)):
        return False
    models = deps.models
    unavailable, previous = error.model or models.name, (models.session_model, models.roles)
    failed.add(unavailable)
    for name in deps.settings.fallback:
        if name in failed:
            continue
        failed.add(name)
        try:
            await models.replace(unavailable, name)
            await deps.budget.require_allowed(
                model for model in models.current.models if model.traits.name == name
            )
        except EcoshellError as refusal:
            emit(Notice(_CANNOT_TAKE_OVER.format(name, unavailable, refusal)))
            continue
        emit(Notice(_TAKES_OVER.format(error.message, name)))
        return True
    if (models.session_model, models.roles) != previous:
        await models.change(model=previous[0], roles=previous[1])
    return False
