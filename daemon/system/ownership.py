"""Who could have written a file that we are about to trust."""

import grp
import os
import pwd
import stat


def explain_other_writers(status: os.stat_result) -> tuple[str, str] | None:
    """Tell who, besides this user and root, could change a file or the files in a folder.

    Returns what is wrong ("can be written by everybody") and the command that helps; None if
    nobody else could. A group whose only member is the owner, as with umask 002 on Debian, counts
    as nobody else. In a folder with the sticky bit others cannot replace our files.
    """
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()):
        return (
            f"belongs to {_user_name(status.st_uid)}",
            f"chown it to {_user_name(os.geteuid())} or root",
        )
    if status.st_mode & stat.S_IWOTH and not is_sticky:
        return "can be written by everybody", "chmod o-w"
    if status.st_mode & stat.S_IWGRP and not is_sticky:
        other_users = _describe_others(status.st_gid, status.st_uid)
        if other_users:
            return f"can be written by {other_users}", "chmod g-w"
    return None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _describe_others(gid: int, uid: int) -> str:
    """Return the members of a group besides the user `uid` and root, at most three names; empty if
    there are none.
    """
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return f"group {gid}"
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    members -= {_user_name(uid), "root"}
    if not members:
        return ""
    return f"the members of group {group.gr_name} ({', '.join(sorted(members)[:3])})"
