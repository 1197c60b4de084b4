"""The bookkeeping of a local model's KV cache, over a stand-in for llama.cpp's memory."""

from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.models.engine import SLOTS, CacheOwner, KVCache

PLANNER, CALLER, SUMMARIZER = (CacheOwner(role) for role in ("planner", "caller", "summarizer"))


class Memory:
    """llama.cpp's sequences: at each position the cell that holds it, cells shared where they were copied."""

    def __init__(self) -> None:
        self.sequences: dict[int, list[object]] = {}
        self.library = SimpleNamespace(llama_memory_seq_cp=self.copy, llama_memory_seq_rm=self.remove)

    def copy(self, _memory, source: int, target: int, begin: int, end: int) -> None:
        self.sequences[target] = self.sequences[source][begin:end]

    def remove(self, _memory, sequence: int, begin: int, _end: int) -> bool:
        del self.sequences.setdefault(sequence, [])[max(0, begin) :]
        return True

    def write(self, sequence: int, tokens: list[int]) -> None:
        self.sequences.setdefault(sequence, []).extend((token, object()) for token in tokens)

    @property
    def cells(self) -> int:
        return len({id(cell) for cells in self.sequences.values() for cell in cells})


def cache_of(cells: int, *, rewinds: bool = True) -> tuple[KVCache, Memory]:
    memory = Memory()
    return KVCache(memory.library, None, cells, rewinds=rewinds), memory  # type: ignore[arg-type]


def ask(cache: KVCache, memory: Memory, owner: CacheOwner, prompt: list[int]) -> int:
    """Evaluate a prompt as the engine does; how much of it was known."""
    slot = cache.take(owner, prompt)
    known = len(slot.tokens)
    cache.make_room(slot, len(prompt) - known)
    memory.write(slot.number, prompt[known:])
    cache.extend(slot, prompt[known:])
    assert slot.tokens == prompt
    assert [token for token, _ in memory.sequences[slot.number]] == prompt  # type: ignore[misc]
    return known


def test_each_role_finds_its_own_prompt_again():
    cache, memory = cache_of(100)
    prompts = {PLANNER: [1] * 20, CALLER: [2] * 20, SUMMARIZER: [3] * 20}
    assert [ask(cache, memory, owner, prompt) for owner, prompt in prompts.items()] == [0, 0, 0]
    assert [ask(cache, memory, owner, [*prompt, 9]) for owner, prompt in prompts.items()] == [20, 20, 20]


def test_what_roles_begin_with_alike_is_stored_once_and_outlives_the_role_it_came_from():
    cache, memory = cache_of(60)
    shared = list(range(30))
    ask(cache, memory, PLANNER, [*shared, 100])
    assert ask(cache, memory, CALLER, [*shared, 200]) == 30
    assert memory.cells == 32
    ask(cache, memory, PLANNER, [300] * 25)
    assert memory.cells <= 60
    assert ask(cache, memory, CALLER, [*shared, 201]) == 30


def test_under_another_adapter_nothing_is_known():
    cache, memory = cache_of(100)
    prompt = list(range(30))
    ask(cache, memory, PLANNER, prompt)
    worn = CacheOwner("planner", Path("a.gguf"))
    assert ask(cache, memory, worn, prompt) == 0
    cache.clear(worn.adapter)
    assert ask(cache, memory, PLANNER, prompt) == 29
    assert ask(cache, memory, worn, prompt) == 0


def test_a_role_with_many_prompts_takes_no_other_roles_last_one():
    cache, memory = cache_of(1000)
    ask(cache, memory, PLANNER, [1] * 10)
    for number in range(3 * SLOTS):
        ask(cache, memory, CALLER, [100 + number] * 10)
    assert ask(cache, memory, PLANNER, [1] * 10) == 9


def test_short_of_cells_a_role_forgets_its_older_prompts_before_another_roles_last_one():
    cache, memory = cache_of(60)
    ask(cache, memory, PLANNER, [1] * 20)
    ask(cache, memory, CALLER, [2] * 20)
    ask(cache, memory, CALLER, [3] * 30)
    assert ask(cache, memory, PLANNER, [1] * 20) == 19


def test_a_recurrent_model_goes_on_from_the_whole_of_a_prompt_or_from_nothing():
    cache, memory = cache_of(100, rewinds=False)
    ask(cache, memory, PLANNER, [1] * 10)
    assert ask(cache, memory, PLANNER, [1] * 12) == 10
    assert ask(cache, memory, CALLER, [1] * 12) == 0
    assert ask(cache, memory, PLANNER, [1] * 8) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([PLANNER, CALLER, SUMMARIZER, CacheOwner("planner", Path("a"))]),
            st.lists(st.integers(0, 1), min_size=1, max_size=30),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_whatever_is_asked_the_cells_suffice_and_the_slots_hold_what_they_say(asked, rewinds):
    cache, memory = cache_of(50, rewinds=rewinds)
    for owner, prompt in asked:
        ask(cache, memory, owner, prompt)
        assert memory.cells <= 50
