"""Kinds of providers that are not ours: a class of the user's, or what an installed package
brings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError
from daemon.models import LLMResponse
from daemon.providers import LLMProvider, create_provider
from tests.providers.calls import user


class Echo(LLMProvider):
    """Says again what it was told."""

    def __init__(self, *, model: str, shout: bool = False) -> None:
        self._model, self._shout = model, shout

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return False

    async def chat(
        self, messages: Any, functions: Any = None, temperature: Any = None, **kw: Any
    ) -> LLMResponse:
        text = messages[-1].content
        return LLMResponse(content=text.upper() if self._shout else text, model=self._model)


HERE = f"{__name__}:Echo"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that brings the kind `echo`."""
    about = tmp_path / "echo_provider-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-provider\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[agentd.providers]\necho = {HERE}\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("kind", [HERE, "echo"])
@pytest.mark.usefixtures("package")
async def test_a_user_defined_provider_class_works_like_a_built_in_provider(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        (  # noqa: UP034
            f'provider = "mine"\n[providers.mine]\nkind = "{kind}"\nmodel = "parrot"\noptions = {{ '
            "shout = true }\n"
        )
    )
    settings = load_config(file).provider_config("mine")
    provider = create_provider(settings.kind, name="mine", api_key=None, **settings.settings())
    assert (provider.name, provider.model_name) == ("mine", "parrot")
    assert (await provider.chat([user("hello")])).content == "HELLO"
    # streaming, which it knows nothing of, is built on chat
    assert [chunk.delta async for chunk in provider.chat_stream([user("hello")])] == ["HELLO"]


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("nowhere.at_all:Provider", {}, "cannot be imported: No module named 'nowhere'"),
        (f"{__name__}:Nobody", {}, "cannot be imported"),
        (f"{__name__}:user", {}, "is no class that derives from daemon.providers.LLMProvider"),
        (HERE, {"colour": "blue"}, "its class does not take these settings"),
        ("ecco", {}, "no such kind"),
    ],
)
def test_an_unusable_provider_class_is_refused_with_the_reason(
    kind: str, options: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=r"config.toml: providers.mine.kind") as error:
        create_provider(kind, name="mine", model="m", options=options)
    assert problem in str(error.value)


@pytest.mark.usefixtures("package")
def test_a_misspelt_provider_kind_is_refused_with_the_known_kinds(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers.mine]\nkind = "ecco"\nmodel = "m"\n')
    with pytest.raises(
        ConfigError, match=r'"scripted" or "echo" \(found "ecco"\); did you mean "echo"'
    ):
        load_config(file)
    file.write_text('[providers.mine]\nkind = "claude"\nmodel = "m"\noptions = { shout = true }\n')
    with pytest.raises(
        ConfigError, match=r"providers.mine.options: is for kinds that are not ours"
    ):
        load_config(file)
