"""Who the programs of tools run as when the daemon is root: a user who owns the workspace and
nothing else.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from daemon.sandbox.sandbox import User

# Between what Debian, useradd and systemd hand out (https://systemd.io/UIDS-GIDS), and there need
# be no such account.
_NOBODY_ELSE = 60789
_ACCOUNT = "agentd"


def tenant(workspace: Path) -> User | None:
    """Return who programs run as; None if that is the daemon's own user, as it is no root.

    That is the owner of the workspace, if it has one of its own already, else the account `agentd`
    or a number that nobody has.
    """
    if os.geteuid() != 0:
        return None
    try:
        about = workspace.stat()
    except FileNotFoundError:
        about = None
    if about and about.st_uid != 0:
        return User(uid=about.st_uid, gid=about.st_gid or about.st_uid)
    with suppress(KeyError):
        account = pwd.getpwnam(_ACCOUNT)
        if account.pw_uid and account.pw_gid:
            return User(uid=account.pw_uid, gid=account.pw_gid)
    return User(uid=_NOBODY_ELSE, gid=_NOBODY_ELSE)


def in_the_way(workspace: Path, user: User) -> Path | None:
    """Return the folder through which the user cannot get to a workspace; None if there is none."""
    for folder in reversed(workspace.resolve().parents):
        about = folder.stat()
        needed = (
            stat.S_IXUSR
            if about.st_uid == user.uid
            else stat.S_IXGRP
            if about.st_gid == user.gid
            else stat.S_IXOTH
        )
        if not about.st_mode & needed:
            return folder
    return None


def settle(workspace: Path, user: User) -> None:
    """Give a workspace of root's, and all that root made in it, to the user; links are not
    followed.
    """
    if workspace.stat().st_uid != 0:
        return
    for _, _, names, folder in os.fwalk(workspace, topdown=False):
        for name in names:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if about.st_uid == 0 and about.st_nlink == 1:  # of several names one may lie elsewhere
                os.chown(name, user.uid, user.gid, dir_fd=folder, follow_symlinks=False)
        if os.fstat(folder).st_uid == 0:
            os.fchown(folder, user.uid, user.gid)
