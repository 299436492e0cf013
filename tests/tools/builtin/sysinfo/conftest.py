import pytest

from daemon.tools.builtin.sysinfo.machine import Files


@pytest.fixture
def machine(tmp_path):
    """A machine made of files: give it `path=text`, get what reads it."""

    def build(**files: str) -> Files:
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Files(tmp_path)

    return build
