from ecoshell.modes.stepwise.choosing import CHAT, SHORTLIST, best_name, score_request, shortlist, totals

NAMES = ("read_file", "calculate")


def test_the_request_is_scored_after_each_name_and_after_chat():
    request = score_request("What is\n2 + 2?", NAMES)
    assert request.contexts == ("read file:", "calculate:", f"{CHAT}:")
    assert set(request.targets) == {" What is 2 + 2?\n"}
    assert request.prefix.endswith("\n")


def test_the_name_that_makes_the_request_likeliest_is_chosen():
    assert best_name(totals(NAMES, (-30.0, -12.0, -20.0), {}, {})) == "calculate"


def test_talk_is_chosen_when_no_name_beats_it_clearly():
    assert best_name(totals(NAMES, (-30.0, -19.0, -20.0), {}, {})) is None
    assert best_name(totals((), (-20.0,), {}, {})) is None


def test_local_ranking_and_misfitting_parameters_tip_the_balance():
    assert best_name(totals(NAMES, (-12.0, -12.5, -20.0), {"calculate": 1.0}, {})) == "calculate"
    assert best_name(totals(NAMES, (-12.0, -13.0, -20.0), {}, {"read_file": 1})) == "calculate"


def test_a_large_pool_is_cut_to_the_names_that_rank_best():
    known = tuple(f"tool_{number}" for number in range(100))
    assert shortlist(known[:5], {}) == known[:5]
    cut = shortlist(known, {"tool_99": 2.0, "tool_50": 1.0})
    assert len(cut) == SHORTLIST
    assert cut[:2] == ("tool_99", "tool_50")


def test_a_pasted_file_is_scored_by_its_beginning():
    assert len(score_request("word " * 10_000, NAMES).targets[0]) < 700
