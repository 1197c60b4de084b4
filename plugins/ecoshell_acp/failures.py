"""Converts ecoshell's errors to errors of the protocol."""

from collections.abc import Generator
from contextlib import contextmanager

from acp import RequestError

from ecoshell.errors import EcoshellError, ModelMissing, SettingsError, UsageError
from ecoshell.events import ErrorHappened
from ecoshell.secrecy import mask_secrets

NOT_FOUND = -32002
_AUTHENTICATION_REQUIRED = -32000
BAD_PARAMETERS, BAD_REQUEST, _INTERNAL_ERROR = -32602, -32600, -32603


@contextmanager
def protocol_errors() -> Generator[None]:
    """Raise ecoshell's errors as protocol errors."""
    try:
        yield
    except EcoshellError as error:
        if isinstance(error, ModelMissing) and error.key:
            raise protocol_error(ErrorHappened.of(error), _AUTHENTICATION_REQUIRED) from error
        is_invalid = isinstance(error, UsageError | SettingsError)
        raise protocol_error(
            ErrorHappened.of(error), BAD_PARAMETERS if is_invalid else _INTERNAL_ERROR
        ) from error


def protocol_error(event: ErrorHappened, code: int = _INTERNAL_ERROR) -> RequestError:
    """Convert an error event to a protocol error."""
    return RequestError(code, mask_secrets(event.render().words), {"kind": event.kind})
