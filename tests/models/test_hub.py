"""Pulling models from a hub on loopback: resuming, checks and errors."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import COMMIT, HubServer, Repo, hub_server

from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, ModelUnavailable, UsageError
from ecoshell.models import hub as hub_module
from ecoshell.models.hub import Hub, HubFile
from ecoshell.models.hub_names import hub_name, quant_of
from ecoshell.models.local_models import hub_file, model_files
from ecoshell.models.recommended import RECOMMENDED

CONTENT = b"GGUF" + bytes(range(256)) * 8192  # two megabytes
NAME = "maker/small-GGUF"
FILE = "small-q4_k_m.gguf"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_TOKEN", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with hub_server() as running:
        monkeypatch.setenv("HF_ENDPOINT", f"{running.address}/")
        running.repos[NAME] = Repo(
            {FILE: CONTENT, "README.md": b"text", "small-q8_0.gguf": b"GGUF eight"}
        )
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


class Puller:
    """Pulls by name and records the progress reports."""

    def __init__(self, server: HubServer, folder: Path) -> None:
        self._hub = Hub(folder, pause=0)
        self.progress: list[tuple[str, int]] = []
        self.retries = 0

    def __call__(self, name: str) -> Path:
        return self._hub.pull(self._hub.find(hub_name(name)), self._record, self._count_retry)

    def _count_retry(self) -> None:
        self.retries += 1

    def _record(self, file: HubFile, received_bytes: int) -> None:
        self.progress.append((file.name, received_bytes))


@pytest.fixture
def pull(server: HubServer, folder: Path) -> Puller:
    return Puller(server, folder)


def files_below(folder: Path) -> list[str]:
    """Every file below the folder except locks."""
    return sorted(
        file.name
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(".lock")
    )


def test_a_pulled_model_is_complete_and_found_by_its_hub_name(pull: Puller, folder: Path) -> None:
    path = pull(f"{NAME}:q4_k_m")
    assert path == folder / "maker" / "small-GGUF" / FILE
    assert path.read_bytes() == CONTENT
    assert files_below(folder) == [FILE]
    assert hub_file(hub_name(f"hf:{NAME}"), folder) == path
    assert [str(file.hub) for file in model_files(folder)] == [f"hf:{NAME}:Q4_K_M"]
    assert pull.progress[-1] == (FILE, len(CONTENT))
    assert pull.progress == sorted(pull.progress)


def test_an_existing_file_is_verified_and_not_downloaded_again(
    pull: Puller, server: HubServer
) -> None:
    path = pull(NAME)
    server.asked.clear()
    assert pull(NAME) == path
    assert server.ranges == []
    path.write_bytes(CONTENT[:-1] + b"!")
    assert pull(NAME).read_bytes() == CONTENT


def test_licence_size_and_revision_are_known_before_the_download(
    server: HubServer, folder: Path
) -> None:
    pull = Hub(folder).find(hub_name(NAME))
    assert (pull.licence, pull.size_bytes, pull.revision) == ("apache-2.0", len(CONTENT), COMMIT)
    assert not folder.exists()


def test_an_interrupted_download_resumes_where_it_stopped(pull: Puller, server: HubServer) -> None:
    server.repos[NAME].cuts = 2
    assert pull(NAME).read_bytes() == CONTENT
    assert pull.retries == 2
    first, second, third = server.ranges
    assert first == ""
    assert 0 < int(second[6:-1]) < int(third[6:-1]) < len(CONTENT)


def test_a_server_without_ranges_sends_the_complete_file_again(
    pull: Puller, server: HubServer
) -> None:
    server.repos[NAME].cuts = 1
    server.repos[NAME].ranges = False
    assert pull(NAME).read_bytes() == CONTENT


def test_downloads_without_ranges_or_progress_are_given_up(pull: Puller, server: HubServer) -> None:
    server.repos[NAME] = repo = Repo({FILE: CONTENT}, cuts=100, shares=(2, 4), ranges=False)
    with pytest.raises(ModelUnavailable, match="The download failed"):
        pull(NAME)
    assert repo.cuts > 90


def test_a_web_page_instead_of_the_remainder_is_not_appended(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    server.repos[NAME].cuts = 100
    with pytest.raises(ModelUnavailable):
        pull(NAME)
    (part,) = folder.rglob("*.part")
    received_bytes = part.stat().st_size
    server.repos[NAME] = Repo({FILE: CONTENT}, page=b"<html>Please pay for the line.</html>")
    with pytest.raises(ModelUnavailable, match="other content"):
        pull(NAME)
    assert part.stat().st_size == received_bytes
    server.repos[NAME] = Repo({FILE: CONTENT})
    assert pull(NAME).read_bytes() == CONTENT


def test_a_partial_download_is_kept_and_never_listed_as_a_model(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    server.repos[NAME].cuts = 100
    server.repos[NAME].ranges = False
    with pytest.raises(ModelUnavailable, match="The download failed") as failed:
        pull(NAME)
    assert "is kept (1.0 MB)" in failed.value.kept
    assert "to resume" in failed.value.fix
    assert f"{FILE}.part" in files_below(folder)
    assert FILE not in files_below(folder)
    assert model_files(folder) == []
    with pytest.raises(ModelMissing, match="is not on this machine") as missing:
        hub_file(hub_name(NAME), folder)
    assert f"ecoshell models pull {NAME}" in missing.value.fix
    server.repos[NAME] = Repo({FILE: CONTENT})
    assert pull(NAME).read_bytes() == CONTENT
    assert int(server.ranges[-1][6:-1]) >= 1_000_000
    assert files_below(folder) == [FILE]


def test_an_interrupted_pull_resumes_the_next_time(
    server: HubServer, folder: Path, pull: Puller
) -> None:
    hub = Hub(folder, pause=0)

    def interrupt(_file: HubFile, received_bytes: int) -> None:
        if received_bytes > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.pull(hub.find(hub_name(NAME)), interrupt)
    assert pull(NAME).read_bytes() == CONTENT
    assert int(server.ranges[-1][6:-1]) > 1_000_000


def test_a_partial_file_of_another_revision_is_deleted(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    server.repos[NAME].cuts = 100
    server.repos[NAME].ranges = False
    with pytest.raises(ModelUnavailable):
        pull(NAME)
    other = b"GGUF" + b"x" * 3_000_000
    server.repos[NAME] = Repo({FILE: other})
    with pytest.raises(ModelBroken, match="does not match"):
        pull(NAME)
    assert pull(NAME).read_bytes() == other
    assert files_below(folder) == [FILE]


def test_a_file_with_the_wrong_checksum_is_deleted(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    server.repos[NAME].wrong_hashes[FILE] = "a" * 64
    with pytest.raises(ModelBroken, match="SHA-256") as failed:
        pull(NAME)
    assert failed.value.kept == "The file was deleted."
    assert files_below(folder) == []


def test_a_file_without_a_checksum_is_not_downloaded(pull: Puller, server: HubServer) -> None:
    server.repos[NAME].has_hashes = False
    with pytest.raises(ModelBroken, match="states no SHA-256"):
        pull(NAME)
    assert server.ranges == []


def test_a_file_in_another_format_is_deleted(pull: Puller, server: HubServer, folder: Path) -> None:
    server.repos[NAME] = Repo({FILE: b"<html>" * 100})
    with pytest.raises(ModelBroken, match="not a GGUF file"):
        pull(NAME)
    assert FILE not in files_below(folder)


def test_a_gated_model_names_its_terms_and_is_pulled_with_a_token(
    pull: Puller, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repos[NAME].gated = True
    with pytest.raises(ModelMissing, match="gated") as failed:
        pull(NAME)
    assert f"{server.address}/{NAME}" in failed.value.fix
    assert "HF_TOKEN" in failed.value.fix
    monkeypatch.setenv("HF_TOKEN", "good")
    assert pull(NAME).read_bytes() == CONTENT


def test_the_token_of_the_login_file_is_sent_without_one_in_the_environment(
    pull: Puller, server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.repos[NAME].gated = True
    (tmp_path / "token").write_text("good\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert pull(NAME).read_bytes() == CONTENT


def test_offline_mode_sends_nothing(
    pull: Puller, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE is set"):
        pull(NAME)
    assert not server.asked


def test_the_token_is_not_sent_to_the_storage(
    pull: Puller, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "good")
    pull(NAME)
    assert server.ranges == [""]
    assert server.tokens
    assert [path for path, _ in server.tokens if path.startswith("/storage/")] == []


@pytest.mark.parametrize("name", ["nobody/nothing", "maker/private"])
def test_a_missing_or_private_repository_is_an_error(
    pull: Puller, server: HubServer, name: str
) -> None:
    server.repos["maker/private"] = Repo({FILE: CONTENT}, private=True)
    with pytest.raises(ModelMissing, match="does not exist"):
        pull(name)


def test_a_repository_without_gguf_files_suggests_another_name(
    pull: Puller, server: HubServer
) -> None:
    server.repos["maker/torch"] = Repo(
        {"model.safetensors": b"x", "mmproj-model-f16.gguf": b"GGUF"}
    )
    with pytest.raises(ModelMissing, match="has no GGUF file") as failed:
        pull("maker/torch")
    assert "-GGUF" in failed.value.fix


def test_an_unknown_quantisation_lists_the_available_ones(pull: Puller) -> None:
    with pytest.raises(ModelMissing, match="Available: Q4_K_M, Q8_0"):
        pull(f"{NAME}:Q2_K")


def test_a_refusal_by_the_storage_is_an_error(pull: Puller, server: HubServer) -> None:
    server.repos[NAME].status = 403
    with pytest.raises(ModelMissing, match="refuses"):
        pull(NAME)


def test_a_busy_storage_is_asked_again_before_the_download_fails(
    pull: Puller, server: HubServer
) -> None:
    server.repos[NAME].status = 503
    with pytest.raises(ModelUnavailable, match="answered with status 503"):
        pull(NAME)
    assert len(server.ranges) == 4


@pytest.mark.parametrize(
    ("address", "message"),
    [("http://127.0.0.1:9", "cannot be reached"), ("{hub}/nowhere", "/nowhere")],
)
def test_an_address_without_a_hub_is_an_error(
    folder: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address.format(hub=server.address))
    with pytest.raises(EcoshellError, match=message):
        Hub(folder, pause=0).find(hub_name(NAME))


def described(**more: object) -> bytes:
    """A hub's description of a repository with one file and these fields."""
    file = {
        "rfilename": FILE,
        "size": 10,
        "lfs": {"size": 10, "sha256": "0" * 64, "pointerSize": 1},
    } | more
    return json.dumps(
        {"id": NAME, "sha": "1", "tags": [], "siblings": [file], "cardData": file.get("card")}
    ).encode()


@pytest.mark.parametrize(
    "odd",
    [
        *(b"[" * 100_000, b'{"id": ' + b"9" * 5_000 + b"}", b"null", b"[1]", b"\xff"),
        *(described(size="ten"), described(size=-5), described(size=True), described(rfilename=5)),
        *(
            described(rfilename="\x1b[2Jsmall-q4_k_m.gguf"),
            described(rfilename="small\x00-q4_k_m.gguf"),
        ),
        *(
            described(lfs={"size": 1, "sha256": 5}),
            described(lfs={"size": 1, "sha256": "../x"}),
            described(card=[1]),
        ),
        itertools.repeat(b"[" + b" " * 100_000),
    ],
)
def test_an_invalid_hub_response_is_an_error(
    pull: Puller, server: HubServer, odd: bytes | Iterator[bytes]
) -> None:
    server.odd = [odd] if isinstance(odd, bytes) else odd
    with pytest.raises((ModelUnavailable, ModelBroken)) as failed:
        pull(NAME)
    assert str(failed.value).isprintable()


def test_nothing_is_downloaded_without_enough_disk_space(
    pull: Puller, server: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder.parent)
    monkeypatch.setattr(hub_module.shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(ModelMissing, match="Not enough space") as failed:
        pull(NAME)
    assert "2.1 MB to download" in failed.value.message
    assert server.ranges == []


def test_a_full_disk_keeps_the_partial_download(
    server: HubServer, folder: Path, pull: Puller
) -> None:
    hub = Hub(folder, pause=0)

    def fill(_file: HubFile, received_bytes: int) -> None:
        if received_bytes > 1_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelMissing, match="No space left") as failed:
        hub.pull(hub.find(hub_name(NAME)), fill)
    assert "is kept" in failed.value.kept
    assert "Free some space" in failed.value.fix
    assert pull(NAME).read_bytes() == CONTENT


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_an_error(pull: Puller, folder: Path) -> None:
    (folder / "maker" / "small-GGUF").mkdir(parents=True)
    (folder / "maker" / "small-GGUF").chmod(0o500)
    with pytest.raises(ModelMissing, match="could not be written"):
        pull(NAME)


def test_a_file_in_place_of_the_models_folder_is_an_error(pull: Puller, folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(ModelMissing, match="cannot be written"):
        pull(NAME)


def test_a_split_model_is_pulled_completely_and_unusable_without_a_part(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    parts = {
        f"Q8_0/big-Q8_0-0000{at}-of-00003.gguf": b"GGUF" + bytes([at]) * 1000 for at in (1, 2, 3)
    }
    server.repos["maker/big"] = Repo(parts)
    path = pull("maker/big:Q8_0")
    assert path.name == "big-Q8_0-00001-of-00003.gguf"
    (model,) = model_files(folder)
    assert (model.size_bytes, model.missing, str(model.hub)) == (3012, (), "hf:maker/big:Q8_0")
    path.with_name("big-Q8_0-00002-of-00003.gguf").unlink()
    (model,) = model_files(folder)
    assert [part.name for part in model.missing] == ["big-Q8_0-00002-of-00003.gguf"]
    with pytest.raises(ModelMissing):
        hub_file(hub_name("maker/big"), folder)
    assert pull("maker/big:Q8_0") == path
    assert model_files(folder)[0].missing == ()


def test_a_second_pull_of_a_file_is_refused_during_the_first(
    server: HubServer, folder: Path, pull: Puller
) -> None:
    hub = Hub(folder, pause=0)
    refused: list[str] = []

    def pull_again(_file: HubFile, _have: int) -> None:
        if not refused:
            with pytest.raises(ModelUnavailable, match="being pulled already") as failed:
                pull(NAME)
            refused.append(failed.value.message)

    assert hub.pull(hub.find(hub_name(NAME)), pull_again).read_bytes() == CONTENT
    assert len(refused) == 1


def test_a_file_name_that_leads_out_of_the_folder_is_refused(
    pull: Puller, server: HubServer, folder: Path
) -> None:
    server.repos[NAME] = Repo({"../../../evil-q4_k_m.gguf": CONTENT})
    with pytest.raises(ModelBroken, match="evil"):
        pull(NAME)
    assert not folder.exists()


@pytest.mark.parametrize("typed", ["", "one", "../b", "a/b:", "a/b/c", "hf:", "a/.."])
def test_an_invalid_repository_name_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(UsageError, match="names no repository"):
        hub_name(typed)


@pytest.mark.parametrize(
    "typed", ["hf:a/b:Q8_0", "a/b:Q8_0", "https://huggingface.co/a/b:Q8_0", "hf.co/a/b:Q8_0"]
)
def test_a_repository_name_is_accepted_in_every_pasted_form(typed: str) -> None:
    assert str(hub_name(typed)) == "hf:a/b:Q8_0"


def test_the_recommended_models_are_one_well_formed_table() -> None:
    assert {model.memory for model in RECOMMENDED} == {2, 4, 8}
    assert [model.download for model in RECOMMENDED] == sorted(
        model.download for model in RECOMMENDED
    )
    assert len({model.name for model in RECOMMENDED}) == len(RECOMMENDED)
    for model in RECOMMENDED:
        assert hub_name(str(model.name)) == model.name
        assert quant_of(f"model-{model.name.quant}.gguf") == model.name.quant
        assert model.download < model.memory
        assert model.licence in {"Apache-2.0", "MIT"}
        if model.bfcl is not None:
            assert model.bfcl.version in {3, 4}
            assert 0 < model.bfcl.percent < 100
            assert model.bfcl.source.startswith("https://")


def test_the_documentation_lists_the_recommended_models() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and "-GGUF:" in line]
    assert rows == [
        f"| `{row.name.short}` | {row.download:g} GB | {row.memory} GB | {row.licence} | {row.bfcl or 'none'} |"
        for row in RECOMMENDED
    ]
