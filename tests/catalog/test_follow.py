"""A catalog whose tools come and go: what a model was shown stays as it was, to the byte."""

from dataclasses import dataclass, field

import pytest

from ecoshell.catalog import Catalog, CatalogNews
from ecoshell.catalog.search import Ranker
from ecoshell.messages import ToolSchema
from ecoshell.tools.function import FunctionTool


def tool(name: str, about: str = "Does something."):
    def run(text: str) -> str:
        return text

    run.__doc__ = about
    return FunctionTool(run, effects=(), name=name)


@dataclass
class Provider:
    """Tools that a test changes."""

    name: str = "any"
    tools: list[FunctionTool] = field(default_factory=list)
    known: bool = True
    status: str = "there"

    async def connect(self) -> None: ...

    async def aclose(self) -> None: ...


def test_tools_come_after_those_that_stay_and_only_when_the_catalog_follows():
    provider = Provider(tools=[tool("any.one")])
    catalog = Catalog([tool("own")], [provider])
    provider.tools = [tool("any.two"), *provider.tools]
    assert catalog.names == ("own", "any.one")
    assert catalog.follow(()) == CatalogNews(added=("any.two",))
    assert catalog.names == ("own", "any.one", "any.two")


def test_tools_that_are_gone_leave_unless_a_model_was_shown_them():
    provider = Provider(tools=[tool("any.one"), tool("any.two")])
    catalog = Catalog([], [provider])
    provider.tools = []
    assert catalog.follow({"any.two"}) == CatalogNews(gone=("any.one",))
    assert catalog.names == ("any.two",)


def test_a_changed_tool_takes_its_place_unless_a_model_was_shown_it():
    provider = Provider(tools=[tool("any.one", "Before."), tool("any.two", "Before.")])
    catalog = Catalog([], [provider])
    provider.tools = [tool("any.one", "After."), tool("any.two", "After.")]
    assert catalog.follow({"any.two"}) == CatalogNews(changed=("any.one",))
    assert [schema.description for schema in catalog.schemas] == ["After.", "Before."]
    assert not catalog.follow({"any.two"})


@pytest.mark.parametrize("name", ["own", "tool_register"])
def test_no_provider_takes_the_name_of_another_tool(name):
    own = tool("own")
    provider = Provider(tools=[tool(name, "Mine now.")])
    catalog = Catalog([own], [provider])
    assert catalog.names == ("own",)
    assert catalog.tool("own") is own


def test_of_two_providers_with_the_same_name_for_a_tool_the_first_has_it():
    first, second = Provider(tools=[tool("same", "First.")]), Provider(tools=[tool("same", "Second.")])
    catalog = Catalog([], [first, second])
    assert [schema.description for schema in catalog.schemas] == ["First."]


def test_a_catalog_that_may_grow_is_never_complete():
    assert Catalog([tool("own")]).is_all(["own"])
    assert not Catalog([tool("own")], [Provider()]).is_all(["own"])


def test_what_has_come_is_found():
    ranker = Ranker([ToolSchema("own", "Counts words.", {})])
    assert ranker.rank("weather") == []
    ranker.follow([ToolSchema("any.weather", "Tells the weather.", {})])
    assert [name for name, _ in ranker.rank("weather")] == ["any.weather"]
