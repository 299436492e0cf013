"""`from daemon import Agent`: the library's public names."""

import subprocess
import sys

import pytest

import daemon


@pytest.mark.parametrize("name", daemon.__all__)
def test_each_public_name_can_be_imported(name):
    assert getattr(daemon, name).__name__ == name


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = daemon.Nothing


def test_importing_the_package_imports_none_of_its_modules():
    code = (
        "import daemon, sys; print(*(name for name in sys.modules if name.startswith('daemon.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
