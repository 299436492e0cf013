"""Make pylock.toml, the hashes of what constraints.txt pins, of a lock file that uv has written:

    uv pip compile -q --universal --python-version 3.11 --all-extras -c constraints.txt \\
        --format pylock.toml pyproject.toml -o pylock.uv.toml
    python -m tests.lock make pylock.uv.toml > pylock.toml

uv names each file by its address on an index. Here a file is named by a path (PEP 751 asks for one
or the other), in a folder `wheels` that `pip download -d wheels` fills from whichever index you
use; then files with other contents than the locked ones are named by

    python -m tests.lock check wheels

Files for other systems than Linux and macOS
on 64-bit Intel and ARM, and for other Pythons than CPython from 3.11 on, are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "pylock.toml"
FOLDER = "wheels"
_USED_PYTHON = re.compile(r"py3|py2\.py3|py3\d+|cp31[1-4]")
_USED_ABI = re.compile(r"none|abi3|cp31[1-4]")
_USED_PLATFORM = re.compile(
    r"any|(?:many|musl)?linux\w*_(?:x86_64|aarch64)|macosx_\w+_(?:x86_64|arm64|universal2)"
)


def file_name(file: dict[str, Any]) -> str:
    """Return the name of a file that uv has locked."""
    return str(file.get("name") or file["url"].rpartition("/")[2])


def is_used(name: str) -> bool:
    """Tell whether a wheel is for a Python and a system that agentd runs on."""
    python, abi, platforms = name.removesuffix(".whl").split("-")[-3:]
    is_stable = abi in ("abi3", "none")
    fits = _USED_PYTHON.fullmatch(python) or (is_stable and re.fullmatch(r"cp3\d+", python))
    return bool(fits and _USED_ABI.fullmatch(abi)) and any(
        _USED_PLATFORM.fullmatch(platform) for platform in platforms.split(".")
    )


def render(lock: dict[str, Any]) -> str:
    """Return pylock.toml with the packages of a lock file, and no address."""
    lines = [
        "# Hashes of what constraints.txt pins; tests/lock.py says how it is made and used.",
        'lock-version = "1.0"',
        'created-by = "agentd"',
        f"requires-python = {json.dumps(lock['requires-python'])}",
    ]
    for package in lock["packages"]:
        lines += ["", "[[packages]]"]
        lines += [
            f"{key} = {json.dumps(package[key])}"
            for key in ("name", "version", "marker")
            if key in package
        ]
        if "sdist" in package:
            lines.append(f"sdist = {_render_file(package['sdist'])}")
        all_wheels = package.get("wheels", ())
        # what is for another system only keeps its files, as a package has to have some
        wheels = [wheel for wheel in all_wheels if is_used(file_name(wheel))] or all_wheels
        if wheels:
            lines += ["wheels = [", *(f"    {_render_file(wheel)}," for wheel in wheels), "]"]
    return "\n".join(lines) + "\n"


def _render_file(file: dict[str, Any]) -> str:
    path, digest = f"{FOLDER}/{file_name(file)}", file["hashes"]["sha256"]
    return f"{{ path = {json.dumps(path)}, hashes = {{ sha256 = {json.dumps(digest)} }} }}"


def differences(lock: dict[str, Any], folder: Path) -> list[str]:
    """Return a sentence for each file in a folder that is not locked, or not as it is locked."""
    digests = {
        Path(file["path"]).name: file["hashes"]["sha256"]
        for package in lock["packages"]
        for file in (*package.get("wheels", ()), *filter(None, [package.get("sdist")]))
    }
    problems = []
    for path in sorted(folder.iterdir()):
        if path.name not in digests:
            problems.append(f"{path.name} is not in pylock.toml")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != digests[path.name]:
            problems.append(f"{path.name} is not the file that pylock.toml names")
    return problems


def main(arguments: list[str]) -> int:
    match arguments:
        case ["make", file]:
            sys.stdout.write(render(tomllib.loads(Path(file).read_text("utf-8"))))
            return 0
        case ["check", folder]:
            problems = differences(tomllib.loads(LOCK.read_text("utf-8")), Path(folder))
            sys.stdout.write("".join(f"{line}\n" for line in problems))
            return int(bool(problems))
    sys.stderr.write("python -m tests.lock make FILE | check FOLDER\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
