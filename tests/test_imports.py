"""A frugal import brings what a plain one brings; only the time and the memory differ."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from daemon.imports import LATE, Late, LatePattern

ROOT = Path(__file__).parents[1]
FRUGALLY = """
import sys
from daemon.imports import frugal
with frugal():
    import asyncio
    from daemon import life
"""


def frugally(code: str) -> str:
    """Return what this code prints in a fresh interpreter that has imported the daemon frugally."""
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", FRUGALLY + code],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_late_module_is_read_by_the_imports_of_the_daemon():
    late = f"{sorted(LATE)!r}"
    assert frugally(f"print(*[name for name in {late} if getattr(sys.modules.get(name), '__file__', None)])") == ""


def apart(before: str, code: str) -> dict[str, set[str]]:
    """Return which words this code prints for each `name` of a late module, after other code.

    That is run once, in a fresh interpreter, and each name has a fork of it: what one imports, the others have not.
    """
    script = f"""{before}
import importlib, os, sys
for name in {sorted(LATE)!r}:
    if not os.fork():
        {code}
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", script],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: set(words) for name, *words in lines}


@pytest.fixture(scope="module")
def public() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The public names of each late module, where it came late and where it did not."""
    told = "print(name, *[each for each in vars(module) if not each.startswith('_')])"
    module = "module = importlib.import_module(name)"
    return apart(FRUGALLY, f"{module}; getattr(module, 'nothing', None); {told}"), apart("", f"{module}; {told}")


@pytest.mark.parametrize("name", sorted(LATE))
def test_a_late_module_has_all_that_it_has_otherwise(name, public):
    late, plain = public
    assert late[name] == plain[name]


def test_what_was_at_hand_is_the_real_thing_afterwards():
    told = frugally("""
import email.utils, http.client, http.cookies, pickle, ssl, structlog
print(ssl.CERT_NONE.name, ssl.PROTOCOL_TLS_SERVER.name, int(ssl.CERT_NONE), int(ssl.PROTOCOL_TLS_SERVER))
print(pickle.PicklingError.__module__, email.utils.formatdate.__module__, structlog.dev.ConsoleRenderer.__name__)
print(http.client.responses[404], http.cookies.SimpleCookie("a=1")["a"].value)
""")
    assert told.split("\n") == [
        "CERT_NONE PROTOCOL_TLS_SERVER 0 17",
        "_pickle email.utils ConsoleRenderer",
        "Not Found 1",
    ]


def test_hashes_are_the_same_before_openssl_is_loaded_and_after():
    told = frugally("""
import hashlib, hmac
def digests():
    made = [hashlib.sha256(b"x"), hashlib.blake2b(b"x", digest_size=12), hashlib.blake2s(b"x")]
    return [each.hexdigest() for each in made]
before = digests()
print(hmac.compare_digest(b"a", b"a"), hmac.compare_digest(b"a", b"b"), "_hashlib" in sys.modules)
print(hashlib.new("sha256", b"x").hexdigest() == before[0], "_hashlib" in sys.modules)
print(digests() == before, "sha512" in hashlib.algorithms_available)
print(hashlib.pbkdf2_hmac("sha256", b"k", b"s", 1).hex()[:8], hmac.new(b"k", b"x", "sha256").hexdigest()[:8])
""")
    derived = hashlib.pbkdf2_hmac("sha256", b"k", b"s", 1).hex()[:8]
    signed = hmac.new(b"k", b"x", "sha256").hexdigest()[:8]
    assert told.split("\n") == ["True False False", "True True", "True True", f"{derived} {signed}"]


def test_tls_is_spoken_as_soon_as_somebody_wants_to(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("needs openssl (apt install openssl)")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    what = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-newkey", "rsa:2048"]
    command = ["openssl", "req", "-x509", "-nodes", *what, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    told = frugally(f"""
async def served(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()

async def echo(said, here=None, there=None):
    async with await asyncio.start_server(served, "127.0.0.1", 0, ssl=here) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=there)
        writer.write(said)
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return answer

async def both():
    print(await echo(b"plain\\n"), "_ssl" in sys.modules)
    import ssl
    here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    here.load_cert_chain({certificate!r}, {key!r})
    print(await echo(b"secret\\n", here, ssl.create_default_context(cafile={certificate!r})), "_ssl" in sys.modules)

asyncio.run(asyncio.wait_for(both(), 60))
""")
    assert told.split("\n") == [r"b'plain\n' False", r"b'secret\n' True"]


def test_a_late_module_is_read_once_whoever_asks_first(tmp_path, monkeypatch):
    (tmp_path / "slow_to_read.py").write_text("import time\nfirst = [1]\ntime.sleep(0.05)\nlast = [2]\n")
    monkeypatch.syspath_prepend(tmp_path)
    module, got, go = Late("slow_to_read", {}), [], threading.Barrier(8)

    def ask() -> None:
        go.wait(20)
        got.append((module.last, module.first))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(got) == 8
    assert {(id(last), id(first)) for last, first in got} == {(id(module.last), id(module.first))}


def test_nobody_reads_a_late_module_by_looking_at_it():
    module = Late("there_is_no_such_module", {"shown": 1})
    assert inspect.getmodule(test_nobody_reads_a_late_module_by_looking_at_it) is not module
    assert not hasattr(module, "__file__")
    assert not hasattr(module, "__path__")
    assert module.shown == 1
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
        module.other  # noqa: B018
    assert isinstance(module, ModuleType)


def test_what_a_late_module_has_not_is_missing_like_everywhere(tmp_path, monkeypatch):
    (tmp_path / "nearly_empty.py").write_text("here = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="module 'nearly_empty' has no attribute 'there'"):
        Late("nearly_empty", {}).there  # noqa: B018


@pytest.mark.parametrize("text", ["", "one 1", "two 22 three", "Ä 4"])
def test_a_late_pattern_does_what_a_pattern_does(text):
    late, real = LatePattern(r"(\w+) (\d+)", re.IGNORECASE), re.compile(r"(\w+) (\d+)", re.IGNORECASE)
    for _ in range(2):  # before it is compiled, and after
        for act in ("match", "search", "fullmatch"):
            found, wanted = getattr(late, act)(text), getattr(real, act)(text)
            assert (found and found.groups()) == (wanted and wanted.groups())
        assert late.findall(text) == real.findall(text)
        assert late.sub("-", text) == real.sub("-", text)
        assert late.split(text) == real.split(text)
        assert (late.pattern, late.flags, late.groups) == (real.pattern, real.flags, real.groups)


def test_libraries_declared_frugally_judge_as_ever():
    told = frugally("""
import dataclasses, h11, pydantic, annotated_types
from typing import Annotated

class Order(pydantic.BaseModel):
    count: Annotated[int, pydantic.Field(gt=0, le=3)]
    names: Annotated[list[str], annotated_types.Len(1, 2)]

try:
    Order(count=4, names=[])
except pydantic.ValidationError as error:
    print(*[each["type"] for each in error.errors()])
print(Order(count=1, names=["a"]).model_json_schema()["properties"]["names"]["maxItems"])
print(annotated_types.Gt(1) == annotated_types.Gt(1), annotated_types.Gt(1) in {annotated_types.Gt(1)})
try:
    annotated_types.Gt(1).gt = 2
except dataclasses.FrozenInstanceError as error:
    print(error)

@dataclasses.dataclass(frozen=True)
class Child(annotated_types.Gt):
    why: str = ""

print(Child(1, "x"), dataclasses.replace(Child(1), why="y"))
asked = dict(method="GET", target="/", headers=[("Host", "x")])
print(h11.Request(**asked) == h11.Request(**asked))
try:
    hash(h11.Data(data=b""))
except TypeError as error:
    print(error)
""")
    assert told.split("\n") == [
        "less_than_equal too_short",
        "2",
        "True True",
        "cannot assign to field 'gt'",
        "Child(gt=1, why='x') Child(gt=1, why='y')",
        "True",
        "unhashable type: 'Data'",
    ]


def test_nothing_of_ours_keeps_a_stand_in():
    told = frugally("""
from daemon import imports
tables = imports.STAND_INS.values()
all_of_them = [each for table in tables for each in table.values()]
stood_in = {id(each) for each in all_of_them if getattr(each, "__module__", "") == imports.__name__}
for name, module in list(sys.modules.items()):
    if name.startswith("daemon.") and module is not imports:
        print(*[f"{name}.{each}" for each, value in vars(module).items() if id(value) in stood_in], end="")
""")
    assert told == ""


def test_structlog_speaks_before_anybody_configures_it():
    told = frugally("""
import structlog
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("it.failed", where="here")
""")
    assert "it.failed" in told and "where=here" in told and "ZeroDivisionError" in told


def test_our_typed_dictionaries_stay_typed():
    told = frugally("""
import typing_extensions
from daemon.control.views import RunView
print(typing_extensions.is_typeddict(RunView), len(RunView.__required_keys__) > 3)
""")
    assert told == "True True"
