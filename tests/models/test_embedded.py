import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ecoshell.errors import ModelMissing
from ecoshell.models import embedded


@pytest.mark.skipif(find_spec(embedded.PACKAGE) is None, reason="the local extra is not installed")
def test_the_embedded_model_is_found_in_its_package_without_importing_it():
    path = embedded.embedded_path()
    assert path.read_bytes()[:4] == b"GGUF"
    assert "llm" not in sys.modules
    assert embedded.PACKAGE not in sys.modules


def test_the_error_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(embedded, "PACKAGE", "no_such_package")
    with pytest.raises(ModelMissing, match=r"ecoshell\[local\]"):
        embedded.embedded_path()


def test_a_package_without_a_model_file_is_not_installed(monkeypatch, tmp_path: Path):
    (tmp_path / "hollow").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(embedded, "PACKAGE", "hollow")
    with pytest.raises(ModelMissing):
        embedded.embedded_path()
