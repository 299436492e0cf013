#!/bin/sh
# Runs as a unit inside the container: what systemd makes of ours. Each line of /out/told is `name=value`.
tell() { echo "$1=$2" >>/out/told; }
show() { systemctl show --value -p "$1" "${2:-agentd}"; }
until_is() { # until_is SECONDS COMMAND…: wait for a command to succeed
    left=$(($1 * 5)); shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1)); [ "$left" -gt 0 ] || return 1
        sleep 0.2
    done
}
ctl() { PYTHONPATH=/opt/agentd:/opt/site /usr/bin/python3 -m daemon.cli.main "$@"; }
restarted() { [ "$(show NRestarts)" -ge 1 ] && [ "$(show ActiveState)" = active ]; }
exec 2>/out/stderr
set -x

systemctl daemon-reload
systemctl start agentd; tell start $?
tell active "$(show ActiveState)"
tell status "$(show StatusText)"
tell answers "$(ctl --socket /run/agentd/agentd.sock --json version)"
tell owner "$(stat -c '%U %a' /var/lib/private/agentd)"

printf '[run]\nprompt = "x"\nprovider = "offline"\n' >/etc/agentd/routines/second.toml
chmod 644 /etc/agentd/routines/second.toml
systemctl reload agentd; tell reload $?
until_is 300 ctl --socket /run/agentd/agentd.sock show second; tell reloaded $?
ctl --socket /run/agentd/agentd.sock run second; tell ran $?
journalctl --sync
tell found "$(journalctl -o cat AGENTD_ROUTINE=second AGENTD_EVENT=run.finished _SYSTEMD_UNIT=agentd.service | head -n 1)"
tell fields "$(journalctl -o json --output-fields=AGENTD_STATUS,PRIORITY,SYSLOG_IDENTIFIER AGENTD_ROUTINE=second \
    AGENTD_EVENT=run.finished | head -n 1)"
tell lines "$(journalctl -o cat -u agentd --grep run.finished | wc -l)"

first=$(show MainPID)
[ "$first" -gt 0 ] && kill -STOP "$first"  # 0 would be this script
until_is 300 restarted; tell watchdog $?
tell again "$([ "$(show MainPID)" != "$first" ] && echo new)"

echo 'nonsense = ' >>/etc/agentd/config.toml
systemctl restart agentd; until_is 300 sh -c '[ "$(systemctl show --value -p ActiveState agentd)" = failed ]'; tell refused $?
tell code "$(show ExecMainStatus)"

umount /proc/kmsg 2>/dev/null 
loginctl enable-linger ada; tell linger $?
until_is 300 systemctl is-active "user@$(id -u ada)"; tell manager $?
as_ada="systemctl --user -M ada@"
$as_ada daemon-reload
$as_ada start agentd; tell user_start $?
tell user_active "$($as_ada show --value -p ActiveState agentd)"
tell user_state "$(ls /home/ada/.local/state/agentd 2>/dev/null | tr '\n' ' ')"
until_is 300 runuser -u ada -- env XDG_RUNTIME_DIR="/run/user/$(id -u ada)" PYTHONPATH=/opt/agentd:/opt/site \
    /usr/bin/python3 -m daemon.cli.main status; tell user_answers $?
pid=$($as_ada show --value -p MainPID agentd)
tell user_home "$(nsenter -t "$pid" -m -U --preserve-credentials sh -c 'touch /home/ada/x 2>&1' | tail -c 30)"
journalctl --no-pager -n 400 >/out/journal
systemctl poweroff
