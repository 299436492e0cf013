"""`from daemon import Agent`: the library's public names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import daemon


@pytest.mark.parametrize("name", daemon.__all__)
def test_each_public_name_can_be_imported(name):
    assert getattr(daemon, name).__name__ == name


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = daemon.Nothing


def test_importing_the_package_imports_none_of_its_modules():
    code = (
        "import daemon, sys; print(*(name for name in sys.modules if name.startswith('daemon.')))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == ""


def test_the_stub_file_imports_the_same_public_names():
    stub = ast.parse(Path(daemon.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module for node in imports for alias in node.names}
    assert modules == daemon._PUBLIC
    assert sorted(modules) == sorted(daemon.__all__)
