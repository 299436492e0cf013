"""Secrets that lie in files of their own: read, and refused where others could read them, too."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from pydantic import SecretStr

from daemon.definitions.words import display, shown
from daemon.errors import ConfigError, Fault

HOOKS_KEY = "hooks.secret_file"


_SHORTEST_SECRET = 24


def check_signing(
    secret: SecretStr, *, file: str, key: str, found: str, where: str = "FILE"
) -> None:
    """Raise ConfigError unless it is a secret of Standard Webhooks."""
    text = secret.get_secret_value().removeprefix("whsec_")
    try:
        size = len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        size = 0
    if size < _SHORTEST_SECRET:  # of the specification, as its size in bytes is
        problem = f"holds no secret of {_SHORTEST_SECRET} bytes or more in base64"
        hint = f"make one: (printf whsec_; head -c 32 /dev/urandom | base64) > {where}"
        raise ConfigError(Fault(file=file, key=key, found=found, problem=problem, hint=hint))


def no_address(file: str, key: str) -> SecretStr:
    hint = (
        'url_file = "…" (a file of yours with mode 0600), url_env or url; or with systemd a '
        "credential of its name"
    )
    raise ConfigError(Fault(file=file, key=key, found="", problem="names no address", hint=hint))


def key_in(path: Path, file: str, key: str) -> SecretStr:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the key cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        raise ConfigError(
            Fault(file=file, key=key, found=shown(str(path)), problem=problem)
        ) from None
    if not text or "\n" in text:
        problem = "holds no key" if not text else "holds more than one line"
        hint = "the key alone, on one line"
        raise ConfigError(
            Fault(
                file=file, key=key, found=shown(str(path)), problem=f"the file {problem}", hint=hint
            )
        )
    return SecretStr(text)


def refuse_if_open(path: Path, file: str, key: str) -> None:
    """Raise ConfigError when others could read (or could have planted) the key, as ssh does."""
    try:
        about = path.stat()
    except OSError as error:
        problem = (
            "no such file"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read: {error.strerror}"
        )
        raise ConfigError(
            Fault(file=file, key=key, found=shown(str(path)), problem=problem)
        ) from None
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid not in (os.geteuid(), 0):
        problem, hint = (
            f"belongs to another user (uid {about.st_uid})",
            f"chown it to uid {os.geteuid()}",
        )
    elif mode & 0o077:
        problem, hint = (
            f"others may read or write the key (mode {mode:04o})",
            f"chmod 600 {display(path)}",
        )
    else:
        return
    raise ConfigError(Fault(file=file, key=key, found=shown(str(path)), problem=problem, hint=hint))
