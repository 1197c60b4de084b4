"""The bookkeeping of a local model's KV cache, with a substitute for llama.cpp's memory."""

from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.models.kv_cache import SLOTS, CacheOwner, KVCache

PLANNER, CALLER, SUMMARIZER = (CacheOwner(role) for role in ("planner", "caller", "summarizer"))


class Memory:
    """llama.cpp's sequences as lists of cells; a copied sequence shares its cells."""

    def __init__(self) -> None:
        self.sequences: dict[int, list[object]] = {}
        self.library = SimpleNamespace(
            llama_memory_seq_cp=self.copy, llama_memory_seq_rm=self.remove
        )

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
    """Evaluate a prompt as the engine does; returns how many of its tokens were cached."""
    slot = cache.take(owner, prompt)
    cached = len(slot.tokens)
    cache.make_room(slot, len(prompt) - cached)
    memory.write(slot.number, prompt[cached:])
    cache.extend(slot, prompt[cached:])
    assert slot.tokens == prompt
    assert [token for token, _ in memory.sequences[slot.number]] == prompt  # type: ignore[misc]
    return cached


def test_each_role_reuses_its_own_prompt():
    cache, memory = cache_of(100)
    prompts = {PLANNER: [1] * 20, CALLER: [2] * 20, SUMMARIZER: [3] * 20}
    assert [ask(cache, memory, owner, prompt) for owner, prompt in prompts.items()] == [0, 0, 0]
    assert [ask(cache, memory, owner, [*prompt, 9]) for owner, prompt in prompts.items()] == [
        20,
        20,
        20,
    ]


def test_a_prefix_shared_by_roles_is_stored_once_and_outlives_its_first_role():
    cache, memory = cache_of(60)
    shared = list(range(30))
    ask(cache, memory, PLANNER, [*shared, 100])
    assert ask(cache, memory, CALLER, [*shared, 200]) == 30
    assert memory.cells == 32
    ask(cache, memory, PLANNER, [300] * 25)
    assert memory.cells <= 60
    assert ask(cache, memory, CALLER, [*shared, 201]) == 30


def test_another_adapter_reuses_nothing():
    cache, memory = cache_of(100)
    prompt = list(range(30))
    ask(cache, memory, PLANNER, prompt)
    adapted = CacheOwner("planner", Path("a.gguf"))
    assert ask(cache, memory, adapted, prompt) == 0
    cache.clear(adapted.adapter)
    assert ask(cache, memory, PLANNER, prompt) == 29
    assert ask(cache, memory, adapted, prompt) == 0


def test_a_role_with_many_prompts_never_evicts_the_last_prompt_of_another():
    cache, memory = cache_of(1000)
    ask(cache, memory, PLANNER, [1] * 10)
    for number in range(3 * SLOTS):
        ask(cache, memory, CALLER, [100 + number] * 10)
    assert ask(cache, memory, PLANNER, [1] * 10) == 9


def test_older_prompts_are_evicted_before_the_last_prompt_of_another_role():
    cache, memory = cache_of(60)
    ask(cache, memory, PLANNER, [1] * 20)
    ask(cache, memory, CALLER, [2] * 20)
    ask(cache, memory, CALLER, [3] * 30)
    assert ask(cache, memory, PLANNER, [1] * 20) == 19


def test_a_recurrent_model_reuses_a_complete_prompt_or_nothing():
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
def test_any_sequence_of_prompts_fits_the_cells_and_matches_the_slots(prompts, rewinds):
    cache, memory = cache_of(50, rewinds=rewinds)
    for owner, prompt in prompts:
        ask(cache, memory, owner, prompt)
        assert memory.cells <= 50
