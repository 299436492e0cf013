"""Read secrets from files of their own, and refuse files that other users could read or write."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import NoReturn

from pydantic import SecretStr

from daemon.definitions.words import display, may_be_secret, show_value
from daemon.errors import ConfigError, Fault

HOOKS_KEY = "hooks.secret_file"

_MIN_SIGNING_SECRET_BYTES = 24  # as the specification of Standard Webhooks demands
_MIN_SHARED_SECRET_CHARACTERS = 16


def check_signing_secret(
    secret: SecretStr, *, file: str, key: str, found: str, where: str = "FILE"
) -> None:
    """Raise ConfigError unless `secret` is one of Standard Webhooks, of 24 bytes or more in
    base64. `where` is the file that the hint names.
    """
    text = secret.get_secret_value().removeprefix("whsec_")
    try:
        size = len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        size = 0
    if size < _MIN_SIGNING_SECRET_BYTES:
        problem = f"holds no secret of {_MIN_SIGNING_SECRET_BYTES} bytes or more in base64"
        hint = f"make one: (printf whsec_; head -c 32 /dev/urandom | base64) > {quote(where)}"
        raise ConfigError(Fault(file=file, key=key, found=found, problem=problem, hint=hint))


def check_shared_secret(secret: SecretStr, *, file: str, key: str, found: str, where: str) -> None:
    """Raise ConfigError if a secret of GitHub, GitLab or Stripe is so short that it can be
    guessed. `where` is the file that the hint names.
    """
    if len(secret.get_secret_value()) < _MIN_SHARED_SECRET_CHARACTERS:
        problem = f"holds a secret of less than {_MIN_SHARED_SECRET_CHARACTERS} characters"
        hint = f"make one, and give it to the sender: openssl rand -hex 32 > {quote(where)}"
        raise ConfigError(Fault(file=file, key=key, found=found, problem=problem, hint=hint))


def raise_no_address(file: str, key: str) -> NoReturn:
    """Raise ConfigError: a target has no address."""
    hint = (
        'url_file = "…" (a file of yours with mode 0600), url_env or url; or with systemd a '
        "credential of its name"
    )
    raise ConfigError(Fault(file=file, key=key, found="", problem="names no address", hint=hint))


def read_variable(env: Mapping[str, str], variable: str, file: str, key: str) -> str:
    """Return the value of an environment variable that `key` of `file` names.

    Raises ConfigError if it is not set or empty.
    """
    if value := env.get(variable, "").strip():
        return value
    problem, hint = "the environment variable it names is not set", "export it where agentd starts"
    raise ConfigError(Fault(file=file, key=key, found="", problem=problem, hint=hint))


def read_secret(path: Path, file: str, key: str) -> SecretStr:
    """Return the one line of a file that `key` of `file` names. Raises ConfigError."""
    try:
        text = path.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the key cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        raise ConfigError(
            Fault(file=file, key=key, found=show_value(str(path)), problem=problem)
        ) from None
    if not text or "\n" in text:
        problem = "holds no key" if not text else "holds more than one line"
        hint = "the key alone, on one line"
        raise ConfigError(
            Fault(
                file=file,
                key=key,
                found=show_value(str(path)),
                problem=f"the file {problem}",
                hint=hint,
            )
        )
    return SecretStr(text)


def refuse_if_shared(path: Path, file: str, key: str) -> None:
    """Raise ConfigError if other users could read or write a file with a secret, as ssh does."""
    try:
        status = path.stat()
    except FileNotFoundError:
        if may_be_secret(str(path), ""):  # a key that was pasted as the name of its file
            problem, hint = "no such file", "name a file that holds the key"
        else:
            problem = f"no such file: {display(path)}"
            hint = f"create it: (umask 077; cat > {quote(display(path))}), one line, then Ctrl-D"
        raise ConfigError(Fault(file=file, key=key, found="", problem=problem, hint=hint)) from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(
            Fault(file=file, key=key, found=show_value(str(path)), problem=problem)
        ) from None
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0):
        problem, hint = (
            f"belongs to another user (uid {status.st_uid})",
            f"chown it to uid {os.geteuid()}",
        )
    elif mode & 0o077:
        problem, hint = (
            f"others may read or write the key (mode {mode:04o})",
            f"chmod 600 {quote(display(path))}",
        )
    else:
        return
    raise ConfigError(
        Fault(file=file, key=key, found=show_value(str(path)), problem=problem, hint=hint)
    )
