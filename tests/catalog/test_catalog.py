"""Catalogs whose providers add and remove tools: what a model has seen stays the same to the byte."""

from dataclasses import dataclass, field

import pytest

from ecoshell.catalog import Catalog, CatalogChanges
from ecoshell.catalog.search import Ranker
from ecoshell.messages import ToolSchema
from ecoshell.tools.function import FunctionTool


def tool(name: str, description: str = "Does something."):
    def run(text: str) -> str:
        return text

    run.__doc__ = description
    return FunctionTool(run, effects=(), name=name)


def descriptions(catalog: Catalog) -> list[str]:
    return [schema.description for schema in catalog.schemas]


@dataclass
class Provider:
    """Tools that a test changes."""

    name: str = "any"
    tools: list[FunctionTool] = field(default_factory=list)
    known: bool = True
    status: str = "there"

    async def connect(self) -> None: ...

    async def aclose(self) -> None: ...


def test_provider_tools_come_last_and_are_added_by_update():
    provider = Provider(tools=[tool("any.one")])
    catalog = Catalog([tool("own")], [provider])
    provider.tools = [tool("any.two"), *provider.tools]
    assert catalog.names == ("own", "any.one")
    assert catalog.update(()) == CatalogChanges(added=("any.two",))
    assert catalog.names == ("own", "any.one", "any.two")


def test_removed_tools_leave_unless_a_model_has_seen_them():
    provider = Provider(tools=[tool("any.one"), tool("any.two")])
    catalog = Catalog([], [provider])
    provider.tools = []
    assert catalog.update({"any.two"}) == CatalogChanges(removed=("any.one",))
    assert catalog.names == ("any.two",)


def test_changed_tools_are_replaced_unless_a_model_has_seen_them():
    provider = Provider(tools=[tool("any.one", "Before."), tool("any.two", "Before.")])
    catalog = Catalog([], [provider])
    provider.tools = [tool("any.one", "After."), tool("any.two", "After.")]
    assert catalog.update({"any.two"}) == CatalogChanges(changed=("any.one",))
    assert descriptions(catalog) == ["After.", "Before."]
    assert not catalog.update({"any.two"})


@pytest.mark.parametrize("name", ["own", "tool_register"])
def test_provider_tool_with_a_used_name_is_ignored(name):
    own = tool("own")
    provider = Provider(tools=[tool(name, "Mine now.")])
    catalog = Catalog([own], [provider])
    assert catalog.names == ("own",)
    assert catalog.tool("own") is own


def test_first_provider_of_a_name_wins():
    first = Provider(tools=[tool("same", "First.")])
    second = Provider(tools=[tool("same", "Second.")])
    assert descriptions(Catalog([], [first, second])) == ["First."]


def test_catalog_with_providers_is_never_complete():
    assert Catalog([tool("own")]).is_all(["own"])
    assert not Catalog([tool("own")], [Provider()]).is_all(["own"])


def test_ranker_finds_added_tools_after_update():
    ranker = Ranker([ToolSchema("own", "Counts words.", {})])
    assert ranker.rank("weather") == []
    ranker.update([ToolSchema("any.weather", "Reports the weather.", {})])
    assert [name for name, _ in ranker.rank("weather")] == ["any.weather"]
