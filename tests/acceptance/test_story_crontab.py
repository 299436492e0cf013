"""A crontab of five lines is taken over: shown, written, run by the daemon, mailed to MAILTO."""

import json

CRONTAB = """\
MAILTO=ada@example.org
30 2 * * * df -h /
*/15 * * * * cat notes.txt
@daily echo "good night"
0 6 * * 1-5 uptime >/dev/null 2>&1
0 3 * * 0 ls {archive}
"""
NAMES = ("df", "cat-notes-txt", "echo-good-night", "uptime-null-2", "ls-archive")


async def test_a_crontab_of_five_lines_is_taken_over(shipped_home, tmp_path):
    home = shipped_home
    (archive := tmp_path / "archive").mkdir()
    home.write("tab", CRONTAB.format(archive=archive))
    takeover = ("import-crontab", str(home.folder / "tab"), *home.places)

    shown = await home.run("agentctl", *takeover)
    assert shown.code == 0, shown.err
    for name in NAMES:
        assert f"routines/{name}.toml" in shown.out
    assert "5 routines; nothing was written" in shown.out
    assert f"commands do not see {archive}" in shown.out
    assert not (home.folder / "routines" / "df.toml").exists()

    rules = json.loads((await home.run("agentctl", *takeover, "--json")).out)["rules"]
    assert len(rules) == 1  # the shipped policy allows what the others run
    assert (await home.run("agentctl", *takeover, "--write")).code == 0
    policy = (home.folder / "policy.toml").read_text()
    home.write("policy.toml", "\n\n".join([policy, *rules]))
    letters, sendmail = tmp_path / "letters", tmp_path / "sendmail"
    sendmail.write_text(f"#!/bin/sh\ncat >> {letters}\n")
    sendmail.chmod(0o755)
    config = (home.folder / "config.toml").read_text()
    address = "sendmail://?to=ada@example.org"
    assert address in config
    home.write("config.toml", config.replace(address, f"{address}&program={sendmail}"))
    checked = await home.agentd("validate")
    assert checked.code == 0, checked.out

    await home.start()
    (home.workspace / "notes.txt").write_text("Water the plants.\n")
    for name in NAMES[:4]:
        result = await home.agentctl("run", name)
        assert result.code == 0, result.err
    await home.wait_for_log("delivery.arrived", times=3, target="mail-ada")
    text = letters.read_text()
    assert "Water the plants." in text and "good night" in text
    assert "uptime" not in text, "what puts nothing out sends nothing, as with cron"

    # The last one, once the policy names its folder as the note has said.
    rules_and_paths = (home.folder / "policy.toml").read_text()
    with_archive = rules_and_paths.replace("\nread = [", f'\nread = ["{archive}", ', 1)
    assert with_archive != rules_and_paths
    home.write("policy.toml", with_archive)
    assert (await home.agentctl("reload")).code == 0
    (archive / "monday.tar").touch()
    result = await home.agentctl("run", "ls-archive")
    assert (result.code, "monday.tar" in result.out) == (0, True), result.err
