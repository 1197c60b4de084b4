"""What one question is planned from before its first step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.mode import View
from ecoshell.errors import ModelMissing, StoreError
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence, document_hash
from ecoshell.planning.btp.value import chance, priors
from ecoshell.planning.mode_choice import NOTHING_KNOWN, ModeEvidence


@dataclass(frozen=True, slots=True)
class Outset:
    """What one question is planned from: what experience says of each tool, and how likely each is to be used."""

    question: str
    view: View
    evidence: Mapping[str, Evidence]
    chances: Mapping[str, float]
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What each tool is worth before its own history, by its fit and by tools like it."""
    record: ModeEvidence = NOTHING_KNOWN
    """How the models that think now have done with questions like this one."""
    fault: str = ""
    """Why experience could not be read; then the plan is made without it."""

    @classmethod
    def of(cls, question: str, deps: Dependencies, view: View) -> "Outset":
        """Everything known before the first step; reads the experience, so may block."""
        hashes = {document.name: document_hash(document) for document in deps.catalog.documents}
        evidence: Mapping[str, Evidence] = {}
        record, fault = NOTHING_KNOWN, ""
        try:
            evidence = deps.planning.past.evidence(question, hashes, deps.models.name)
            mode = deps.models.current.mode.name
            record = deps.planning.past.modes(question, {mode: deps.models.playing(mode)})[mode]
        except (StoreError, ModelMissing) as failure:
            fault = f"This turn is planned without experience. {failure}"
        fits = deps.ranker.chances(question)
        usual = sum(fits.values()) / max(1, len(fits))
        chances = {name: chance(evidence.get(name, NO_EVIDENCE), fits.get(name, 0.0), usual) for name in hashes}
        kinds = {document.name: document.server for document in deps.catalog.documents}
        return cls(question, view, evidence, chances, priors(evidence, fits, kinds), record, fault)
