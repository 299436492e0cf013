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
_FREE_ID = 60789
_ACCOUNT = "agentd"


def find_program_user(workspace: Path) -> User | None:
    """Return who programs run as; None if that is the daemon's own user, as it is no root.

    That is the owner of the workspace, if it has one of its own already, else the account `agentd`
    or a number that nobody has.
    """
    if os.geteuid() != 0:
        return None
    try:
        status = workspace.stat()
    except OSError:  # it is not there yet, or nothing can be there
        status = None
    if status and status.st_uid != 0:
        return User(uid=status.st_uid, gid=status.st_gid or status.st_uid)
    with suppress(KeyError):
        account = pwd.getpwnam(_ACCOUNT)
        if account.pw_uid and account.pw_gid:
            return User(uid=account.pw_uid, gid=account.pw_gid)
    return User(uid=_FREE_ID, gid=_FREE_ID)


def find_blocked_folder(workspace: Path, user: User) -> Path | None:
    """Return the folder through which the user cannot get to a workspace; None if there is none."""
    for folder in reversed(workspace.resolve().parents):
        status = folder.stat()
        if status.st_uid == user.uid:
            needed_bit = stat.S_IXUSR
        elif status.st_gid == user.gid:
            needed_bit = stat.S_IXGRP
        else:
            needed_bit = stat.S_IXOTH
        if not status.st_mode & needed_bit:
            return folder
    return None


def give_workspace_to_user(workspace: Path, user: User) -> None:
    """Give a workspace of root's, and all that root made in it, to the user; links are not
    followed.
    """
    if workspace.stat().st_uid != 0:
        return
    for _, _, names, folder in os.fwalk(workspace, topdown=False):
        for name in names:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            # of several names one may lie elsewhere
            if status.st_uid == 0 and status.st_nlink == 1:
                os.chown(name, user.uid, user.gid, dir_fd=folder, follow_symlinks=False)
        if os.fstat(folder).st_uid == 0:
            os.fchown(folder, user.uid, user.gid)
