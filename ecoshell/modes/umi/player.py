"""The model of one role, and the form of its requests."""

from ecoshell.agent.view import View
from ecoshell.messages import FINISH, Message, ToolSchema
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.requests import Messages, callable_schemas, prompt, system_text
from ecoshell.modes.small import limited_registration, small_model_aids, with_question
from ecoshell.modes.umi.decision import Decision, Next, decision, own_decision
from ecoshell.modes.umi.dialogue import lines, planned, spoken


class Player:
    """The model of one role."""

    def __init__(self, role: str, model: MeteredModel) -> None:
        self.role = role
        self.model = model
        self.aids = small_model_aids(model.traits)
        self.native = self.aids is None and model.traits.native_tools
        """Whether it reads messages and tool calls; otherwise it reads lines of text."""

    def prompt(self, name: str) -> str:
        """A prompt in its version for this model."""
        return prompt(f"umi/{name}_small" if self.aids else f"umi/{name}")

    def decision(self, text: str) -> Decision:
        return decision(text) if self.aids else own_decision(text)

    def history(self, messages: Messages) -> Messages:
        """Turns and paths as this model reads them."""
        return spoken(messages) if self.native else lines(messages)

    def planner_words(self, rationale: str, following: Next) -> Messages:
        """The planner's latest text as this model reads it."""
        if not self.native:
            return (planned(rationale, following),)
        return (Message("assistant", rationale),) if rationale else ()

    def system(self, view: View) -> str:
        if self.aids:
            return self.prompt("system")
        return f"{system_text(view.presentation)}\n\n{self.prompt('system')}"

    def equipped(self, view: View) -> tuple[Message, tuple[ToolSchema, ...]]:
        """The beginning of a prompt, the same for all roles of a model: the system text and the tool array.

        For a model without native tool calls, the text contains the schemas and the caller's format.
        """
        array, text = view.array, self.system(view)
        if self.model.traits.native_tools:
            return Message("system", text), array
        schemas = "\n".join(schema.as_text() for schema in array if schema.name != FINISH)
        return Message("system", f"{text}\n\n{prompt('umi/written')}\n\nTools:\n{schemas}"), ()

    def closing(self, view: View) -> str:
        """The request for an answer when nothing more can be done."""
        return with_question("conclude", view.path.question) if self.aids else prompt("answer_now")

    def callable_schemas(self, view: View) -> tuple[ToolSchema, ...]:
        """The tools that the caller may call now; `finish` is left to the planner."""
        schemas = callable_schemas(view, view.array)
        if self.aids is not None and self.aids.grammar:
            schemas = limited_registration(view, schemas)
        return tuple(schema for schema in schemas if schema.name != FINISH)
