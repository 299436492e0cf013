#compdef agentctl agentd
# agentctl completion zsh > ~/.zfunc/_agentctl    (with `fpath+=~/.zfunc` before compinit in .zshrc)
local -a verbs words
if [[ $service == agentd ]]; then
    if (( CURRENT == 2 )); then
        compadd -- once worker init new setup validate doctor policy observe target replay freeze backup restore export import import-crontab service logs
    elif [[ $words[2] == once ]]; then
        compadd -- ${(f)"$(agentctl list --json 2>/dev/null | sed 's/{"name": "/\n&/g' | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p')"}
    else
        _files
    fi
    return
fi
verbs=('status:how the daemon is' 'list:every routine - when it runs, how it last went' 'show:one routine in full' 'preview:what a run of it would be told, and how long that is' 'next:what runs next' 'why:why a slot ran or did not, in one sentence' 'run:run a routine now, and print its report' 'ask:ask the agent something, in a conversation that goes on' 'tell:tell a run something; an ended one is asked anew' 'runs:past and present runs' 'inspect:one run in full - prompt, calls, verdicts, usage' 'report:the last report, and nothing else' 'replay:play a run, or a frozen one, again - identical, or where they part' 'rehearse:try a routine - the real model looks; what it would do is shown, not done' 'freeze:write a run into a folder - a regression case that needs nothing else' 'logs:the log; -f follows it, works without a daemon too' 'events:what runs do, as it happens; Ctrl-C ends it' 'cancel:stop a run' 'pause:let no slot of a routine start; --all - of none' 'resume:let a paused routine go on; --all - every one, as after a restore' 'slots:what became of each scheduled moment' 'deliveries:where reports went; retry ID sends one again, drop ID gives it up' 'incidents:what is wrong - one line per cause, however often it happened' 'setup:a model in a minute - asks, tries it, writes config; without a daemon too' 'target:target test NAME - send a short message there now, without a daemon too' 'ack:say that you know of an incident - no more reminders until it is over' 'usage:what calls to models cost - calls, tokens, dollars; where the caps stand' 'approvals:calls that wait for your word' 'approve:allow a call - once, or with --remember for good' 'reject:refuse a call; its run goes on without it' 'policy:check, explain, test, backtest or suggest the policy, without a daemon too' 'observe:let a routine run on trial - nobody is asked, what is denied is recorded' 'quarantine:texts that were kept from the models' 'audit:every call and verdict; --verify proves that none was changed' 'seen:what a routine with [dedupe] has reported; forget KEY - it may again' 'memory:search what runs left behind; forget, pin, export it' 'new:write a routine - new NAME "weekdays at 9am", without a daemon too' 'edit:change a routine'\''s file in your editor; it counts once nothing is wrong' 'top:what runs, waits and is next, live; q quits (extra top)' 'ui:a page to look at, in a browser of this machine' 'mcp:tools of MCP servers, and what changed; serve - be one for coding agents' 'completion:what bash, zsh or fish offers after TAB' 'forecast:what the coming days will take - tokens, dollars, time; caps, collisions' 'metrics:numbers for Prometheus; --textfile for its node_exporter' 'backup:copy all it knows into one file, while it runs, without a daemon too' 'restore:put a backup back; everything stands still until resume --all' 'service:install or uninstall a systemd unit, shown first' 'export:routines with their history for another machine, without a daemon too' 'import:take in what was exported elsewhere, while no daemon runs' 'import-crontab:turn the lines of a crontab into routines, shown first, without a daemon too' 'rename:give a routine another name; its history goes along' 'adopt:make a routine yours that an agent made' 'remove:remove a routine that an agent made' 'stop:stop the daemon once its runs have ended, and wait for that' 'reload:read config, policy and routines again' 'validate:check config, policy and routines, without a daemon too' 'doctor:look for what is wrong here, without a daemon too' 'version:which version this is, and which one the daemon' 'help:the verbs one needs most, all of them with --all, or a verb'\''s options')
if (( CURRENT == 2 )); then
    _describe verb verbs
    return
fi
local verb=$words[2]
case $verb in
    status) words=(--json) ;;
    list) words=(--json) ;;
    show) words=(--json) ;;
    preview) words=(--full --json) ;;
    next) words=(--limit --days --ics --json) ;;
    why) words=(--at --json) ;;
    run) words=(--input --tainted --gate --detach --again --json) ;;
    ask) words=(--session --new --detach --json) ;;
    tell) words=(--detach --json) ;;
    runs) words=(--status --limit --json) ;;
    inspect) words=(--full --follow --html --json) ;;
    report) words=(--json) ;;
    replay) words=(--model --prompt --policy --json) ;;
    rehearse) words=(--approve --json) ;;
    freeze) words=(--json) ;;
    logs) words=(--follow --level --routine --run --since --json) ;;
    events) words=(--follow --json) ;;
    cancel) words=(--json) ;;
    pause) words=(--all --until --json) ;;
    resume) words=(--all --json) ;;
    slots) words=(--limit --json) ;;
    deliveries) words=(retry drop --run --status --limit --json) ;;
    incidents) words=(--all --limit --json) ;;
    setup) words=(--json) ;;
    target) words=(test --json) ;;
    ack) words=(--json) ;;
    usage) words=(--by --days --json) ;;
    approvals) words=(--all --remembered --revoke --json) ;;
    approve) words=(--remember --yes --json) ;;
    reject) words=(--json) ;;
    policy) words=(check explain test backtest suggest --json) ;;
    observe) words=(--for --stop --yes --json) ;;
    quarantine) words=(--limit --json) ;;
    audit) words=(--run --verify --limit --json) ;;
    seen) words=(forget --all --limit --json) ;;
    memory) words=(search list show forget export import pin unpin stats reindex check --json) ;;
    new) words=(--json) ;;
    edit) words=() ;;
    top) words=() ;;
    ui) words=(--port) ;;
    mcp) words=(list accept serve --yes --json) ;;
    completion) words=() ;;
    forecast) words=(--days --json) ;;
    metrics) words=(--textfile --json) ;;
    backup) words=() ;;
    restore) words=() ;;
    service) words=(install uninstall) ;;
    export) words=() ;;
    import) words=() ;;
    import-crontab) words=(--json) ;;
    rename) words=(--json) ;;
    adopt) words=(--json) ;;
    remove) words=(--json) ;;
    stop) words=(--now --timeout --json) ;;
    reload) words=(--json) ;;
    validate) words=(--json) ;;
    doctor) words=(--deep --json) ;;
    version) words=(--json) ;;
    help) words=(--all --json) ;;
esac
case $verb in (deliveries) words+=(${(f)"$(agentctl deliveries --status failed --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')"}) ;; esac
case $verb in (ack) words+=(${(f)"$(agentctl incidents --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')"}) ;; esac
case $verb in (adopt|cancel|edit|events|freeze|inspect|next|pause|preview|rehearse|remove|rename|replay|report|resume|run|runs|seen|show|slots|tell|why) words+=(${(f)"$(agentctl list --json 2>/dev/null | sed 's/{"name": "/\n&/g' | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p')"}) ;; esac
case $verb in (approvals|approve|reject) words+=(${(f)"$(agentctl approvals --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')"}) ;; esac
case $verb in (audit|cancel|deliveries|freeze|inspect|replay|tell) words+=(${(f)"$(agentctl runs --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')"}) ;; esac
_describe word words || _files
