"""`ecoshell profile`: runs a tool on files of growing size, and stores time and memory."""

import json
from contextlib import closing

import pytest

from ecoshell.assembly import load_settings, profiles_of
from ecoshell.cli import main
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import ProfileStore


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for size in (10, 1_000, 100_000):
        (folder / f"notes{size}.txt").write_text("word " * (size // 5))
    return folder


@pytest.fixture
def profile(capsys):
    def run(*argv, status=0):
        got = main(["profile", *argv])
        output = capsys.readouterr()
        assert got == status, output.err
        return output.err if status else output.out

    return run


def stored_profiles():
    with closing(ProfileStore(user_paths().profiles_file)) as store:
        return store.profiles()


def test_tool_runs_on_each_file_smallest_first_with_a_price_per_level(profile):
    report = json.loads(profile("count_text", "--inputs", "notes*.txt", "--repeat", "2", "--json"))
    assert [(row["input"], row["size"]) for row in report["runs"]] == [
        ("notes10.txt", 10),
        ("notes1000.txt", 1_000),
        ("notes100000.txt", 100_000),
    ]
    assert all(
        row["ms"] > 0 and float(row["price"]) >= 2e-7 and row["failed"] is None
        for row in report["runs"]
    )
    assert [level["size"] for level in report["levels"]] == pytest.approx([10, 1_000, 100_000])
    assert all(level["measured"] for level in report["levels"])
    assert stored_profiles()["count_text"].levels == pytest.approx((10, 1_000, 100_000))


def test_result_is_printed_as_tables(profile):
    output = profile("read_file", "--inputs", "notes10.txt", "notes1000.txt", "--repeat", "1")
    assert "notes1000.txt" in output
    assert "size level" in output
    assert "Stored for planning: read_file costs" in output


def test_file_content_is_passed_if_no_argument_takes_a_path(profile, home):
    (home / "sum.txt").write_text("17 * 23")
    report = json.loads(profile("calculate", "--inputs", "sum.txt", "--repeat", "1", "--json"))
    assert report["runs"][0]["failed"] is None


def test_constant_arguments_and_the_file_argument_can_be_set(profile):
    argv = (
        "search_text",
        "--inputs",
        "notes10.txt",
        "--set",
        "text=word",
        "--into",
        "path",
        "--repeat",
        "1",
    )
    assert json.loads(profile(*argv, "--json"))["runs"][0]["failed"] is None


def test_tool_that_may_write_runs_only_with_yes(profile, home):
    (home / "make.py").write_text("open('made', 'w').close()")
    refused = profile("run_python", "--inputs", "make.py", "--into", "code", status=2)
    assert "execute" in refused
    assert "--yes" in refused
    assert not (home / "made").exists()
    profile("run_python", "--inputs", "make.py", "--into", "code", "--yes", "--repeat", "1")
    assert (home / "made").exists()


def test_denied_tool_does_not_run_even_with_yes(profile):
    user_paths().config.mkdir(parents=True)
    user_paths().settings_file.write_text('[approval]\ndeny = ["read_file"]\n')
    assert "deny read_file" in profile("read_file", "--inputs", "notes10.txt", "--yes", status=2)


def test_tool_that_always_fails_keeps_its_earlier_profile(profile, home):
    profile("json_query", "--inputs", "notes10.txt", "--set", "expression=a", status=1)
    assert not user_paths().profiles_file.exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("nosuch", "--inputs", "notes10.txt"), "Unknown tool"),
        (("read_file", "--inputs", "gone*.txt"), "No file matches 'gone\\*.txt'"),
        (("read_file", "--inputs", "n" * 300), "File name too long"),
        (("read_file", "--inputs", "notes10.txt", "--repeat", "0"), "--repeat 0"),
        (("read_file", "--inputs", "notes10.txt", "--into", "nowhere"), "no argument 'nowhere'"),
        (("read_file", "--inputs", "notes10.txt", "--set", "start"), "--set 'start'"),
        (
            ("current_time", "--inputs", "notes10.txt", "--set", "timezone=Europe/Oslo"),
            "takes a file",
        ),
    ],
)
def test_invalid_arguments_are_refused(profile, argv, message):
    assert message.replace("\\*", "*") in profile(*argv, status=2)


def test_resource_price_adds_to_the_cost_of_profiled_tools(profile):
    profile("read_file", "--inputs", "notes10.txt", "--repeat", "1")
    user_paths().config.mkdir(parents=True)

    def worth(price):
        user_paths().settings_file.write_text(f'[plan]\nresource_price = "{price}"\n')
        return profiles_of(load_settings(user_paths()), user_paths()).resources

    assert worth("off") == {}
    cheap, dear = worth("1")["read_file"], worth("1000")["read_file"]
    assert cheap >= 200
    assert dear == pytest.approx(1_000 * cheap, rel=0.01)
