"""What a model answered so far, in a file beside the run, so that an interrupted one goes on where it was.

The file is JSON Lines: a heading that says what was asked of whom, then one line for each step, by its task's id and
its number. A line that was being written when the process died is dropped, and its step asked again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from ecoshell.errors import StoreError, UsageError
from ecoshell.files import remedy
from ecoshell.paths import user_paths
from ecoshell_bench.trajectories import read_objects
from ecoshell_bench.umi.metrics import Prediction

if TYPE_CHECKING:
    from ecoshell_bench.umi.asking import Players

_FIX = "Give another file with --out, or remove this one."


@dataclass(frozen=True, slots=True)
class Heading:
    """What must be the same for a run to go on; `data` is the digest of the trajectories' file.

    Not which of the steps are asked for: an answer is the same whatever else was asked.
    """

    data: str
    model: str
    mode: str
    roles: Mapping[str, str]
    """The models that roles have of their own."""

    @classmethod
    def of(cls, data: Path, players: "Players") -> "Heading":
        """The heading of a run that asks these players."""
        return cls(hashlib.sha256(data.read_bytes()).hexdigest(), players.model, players.mode, players.named)

    def file(self) -> Path:
        """Where an interrupted run is kept for this user unless told otherwise."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]
        return user_paths().data / "bench" / f"umi-{digest}.jsonl"


@dataclass(frozen=True, slots=True)
class Answered:
    """One step as the model answered it, and what that took; `error` says why there is no decision."""

    id: str
    step: int
    """Counted from 0."""
    prediction: Prediction
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    spent_nano: int | None = 0
    seconds: float = 0.0


class ResultsFile:
    """The answers in a file; what stands there already when it is opened is `known`. Raises UsageError."""

    def __init__(self, path: Path, heading: Heading) -> None:
        self.path = path
        self.known: dict[tuple[str, int], Answered] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as failure:
            raise UsageError(f"{path} cannot be written: {failure.strerror}.", fix="Name another file.") from failure
        try:
            self._drop_torn_line()
            self._read(heading)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # of what could not be written, as was said then
            self._file.close()

    def add(self, answered: Answered) -> None:
        """Write an answer down before anything else is asked."""
        self.known[answered.id, answered.step] = answered
        self._write(asdict(answered))

    def kept(self, wanted: Iterable[tuple[str, int]]) -> int:
        """How many of these steps are answered."""
        return sum(one in self.known for one in wanted)

    def remove(self) -> None:
        """The run is over, and nobody asked for the file."""
        self.path.unlink(missing_ok=True)

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(record).encode() + b"\n")
            self._file.flush()
        except OSError as failure:
            fix = remedy(failure, "Name another file.")
            message = f"{self.path} cannot be written: {failure.strerror}."
            raise StoreError(
                message, kept="What stands there is kept, and a further run can go on there.", fix=fix
            ) from failure

    def _drop_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        if not content.endswith(b"\n"):
            self._file.truncate(content.rfind(b"\n") + 1)

    def _read(self, heading: Heading) -> None:
        lines = read_objects(self.path)
        first = next(lines, None)
        if first is None:
            self._write(asdict(heading))
            return
        place, found = first
        for key, value in asdict(heading).items():
            if found.get(key) != value:
                raise UsageError(
                    f"{place}: these are results of another run, not of the same {key}.", kept="It stays.", fix=_FIX
                )
        for place, record in lines:
            answered = _answered(record, place)
            self.known[answered.id, answered.step] = answered


def _answered(record: Mapping[str, Any], place: str) -> Answered:
    try:
        prediction = Prediction(**record["prediction"])
        if not isinstance(cast("object", prediction.arguments), dict):
            raise TypeError("its arguments are no object")
        fields: dict[str, Any] = {**record, "prediction": prediction}
        return Answered(**fields)
    except (KeyError, TypeError) as failure:
        raise UsageError(f"{place} is not an answer to a step: {failure}.", kept="It stays.", fix=_FIX) from failure
