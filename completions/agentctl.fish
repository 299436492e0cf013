# agentctl completion fish > ~/.config/fish/completions/agentctl.fish
complete -c agentctl -f
complete -c agentctl -n __fish_use_subcommand -a status -d 'how the daemon is'
complete -c agentctl -n '__fish_seen_subcommand_from status' -l json
complete -c agentctl -n __fish_use_subcommand -a list -d 'every routine: when it runs, how it last went'
complete -c agentctl -n '__fish_seen_subcommand_from list' -l json
complete -c agentctl -n __fish_use_subcommand -a show -d 'one routine in full'
complete -c agentctl -n '__fish_seen_subcommand_from show' -l json
complete -c agentctl -n __fish_use_subcommand -a preview -d 'what a run of it would be told, and how long that is'
complete -c agentctl -n '__fish_seen_subcommand_from preview' -l full
complete -c agentctl -n '__fish_seen_subcommand_from preview' -l json
complete -c agentctl -n __fish_use_subcommand -a next -d 'what runs next'
complete -c agentctl -n '__fish_seen_subcommand_from next' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from next' -l days
complete -c agentctl -n '__fish_seen_subcommand_from next' -l ics
complete -c agentctl -n '__fish_seen_subcommand_from next' -l json
complete -c agentctl -n __fish_use_subcommand -a why -d 'why a slot ran or did not, in one sentence'
complete -c agentctl -n '__fish_seen_subcommand_from why' -l at
complete -c agentctl -n '__fish_seen_subcommand_from why' -l json
complete -c agentctl -n __fish_use_subcommand -a run -d 'run a routine now, and print its report'
complete -c agentctl -n '__fish_seen_subcommand_from run' -l input
complete -c agentctl -n '__fish_seen_subcommand_from run' -l tainted
complete -c agentctl -n '__fish_seen_subcommand_from run' -l gate
complete -c agentctl -n '__fish_seen_subcommand_from run' -l detach
complete -c agentctl -n '__fish_seen_subcommand_from run' -l again
complete -c agentctl -n '__fish_seen_subcommand_from run' -l json
complete -c agentctl -n __fish_use_subcommand -a ask -d 'ask the agent something, in a conversation that goes on'
complete -c agentctl -n '__fish_seen_subcommand_from ask' -l session
complete -c agentctl -n '__fish_seen_subcommand_from ask' -l new
complete -c agentctl -n '__fish_seen_subcommand_from ask' -l detach
complete -c agentctl -n '__fish_seen_subcommand_from ask' -l json
complete -c agentctl -n __fish_use_subcommand -a tell -d 'tell a run something; an ended one is asked anew'
complete -c agentctl -n '__fish_seen_subcommand_from tell' -l detach
complete -c agentctl -n '__fish_seen_subcommand_from tell' -l json
complete -c agentctl -n __fish_use_subcommand -a runs -d 'past and present runs'
complete -c agentctl -n '__fish_seen_subcommand_from runs' -l status
complete -c agentctl -n '__fish_seen_subcommand_from runs' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from runs' -l json
complete -c agentctl -n __fish_use_subcommand -a inspect -d 'one run in full: prompt, calls, verdicts, usage'
complete -c agentctl -n '__fish_seen_subcommand_from inspect' -l full
complete -c agentctl -n '__fish_seen_subcommand_from inspect' -l follow
complete -c agentctl -n '__fish_seen_subcommand_from inspect' -l html
complete -c agentctl -n '__fish_seen_subcommand_from inspect' -l json
complete -c agentctl -n __fish_use_subcommand -a report -d 'the last report, and nothing else'
complete -c agentctl -n '__fish_seen_subcommand_from report' -l json
complete -c agentctl -n __fish_use_subcommand -a replay -d 'play a run, or a frozen one, again: identical, or where they part'
complete -c agentctl -n '__fish_seen_subcommand_from replay' -l model
complete -c agentctl -n '__fish_seen_subcommand_from replay' -l prompt
complete -c agentctl -n '__fish_seen_subcommand_from replay' -l policy
complete -c agentctl -n '__fish_seen_subcommand_from replay' -l json
complete -c agentctl -n __fish_use_subcommand -a rehearse -d 'try a routine: the real model looks; what it would do is shown, not done'
complete -c agentctl -n '__fish_seen_subcommand_from rehearse' -l approve
complete -c agentctl -n '__fish_seen_subcommand_from rehearse' -l json
complete -c agentctl -n __fish_use_subcommand -a freeze -d 'write a run into a folder: a regression case that needs nothing else'
complete -c agentctl -n '__fish_seen_subcommand_from freeze' -l json
complete -c agentctl -n __fish_use_subcommand -a logs -d 'the log; -f follows it, works without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l follow
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l level
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l routine
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l run
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l since
complete -c agentctl -n '__fish_seen_subcommand_from logs' -l json
complete -c agentctl -n __fish_use_subcommand -a events -d 'what runs do, as it happens; Ctrl-C ends it'
complete -c agentctl -n '__fish_seen_subcommand_from events' -l follow
complete -c agentctl -n '__fish_seen_subcommand_from events' -l json
complete -c agentctl -n __fish_use_subcommand -a cancel -d 'stop a run'
complete -c agentctl -n '__fish_seen_subcommand_from cancel' -l json
complete -c agentctl -n __fish_use_subcommand -a pause -d 'let no slot of a routine start; --all: of none'
complete -c agentctl -n '__fish_seen_subcommand_from pause' -l all
complete -c agentctl -n '__fish_seen_subcommand_from pause' -l until
complete -c agentctl -n '__fish_seen_subcommand_from pause' -l json
complete -c agentctl -n __fish_use_subcommand -a resume -d 'let a paused routine go on; --all: every one, as after a restore'
complete -c agentctl -n '__fish_seen_subcommand_from resume' -l all
complete -c agentctl -n '__fish_seen_subcommand_from resume' -l json
complete -c agentctl -n __fish_use_subcommand -a slots -d 'what became of each scheduled moment'
complete -c agentctl -n '__fish_seen_subcommand_from slots' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from slots' -l json
complete -c agentctl -n __fish_use_subcommand -a deliveries -d 'where reports went; retry ID sends one again, drop ID gives it up'
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -a retry
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -a drop
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -l run
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -l status
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -l json
complete -c agentctl -n __fish_use_subcommand -a incidents -d 'what is wrong: one line per cause, however often it happened'
complete -c agentctl -n '__fish_seen_subcommand_from incidents' -l all
complete -c agentctl -n '__fish_seen_subcommand_from incidents' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from incidents' -l json
complete -c agentctl -n __fish_use_subcommand -a setup -d 'a model in a minute: asks, tries it, writes config; without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from setup' -l json
complete -c agentctl -n __fish_use_subcommand -a target -d 'target test NAME: send a short message there now, without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from target' -a test
complete -c agentctl -n '__fish_seen_subcommand_from target' -l json
complete -c agentctl -n __fish_use_subcommand -a ack -d 'say that you know of an incident: no more reminders until it is over'
complete -c agentctl -n '__fish_seen_subcommand_from ack' -l json
complete -c agentctl -n __fish_use_subcommand -a usage -d 'what calls to models cost: calls, tokens, dollars; where the caps stand'
complete -c agentctl -n '__fish_seen_subcommand_from usage' -l by
complete -c agentctl -n '__fish_seen_subcommand_from usage' -l days
complete -c agentctl -n '__fish_seen_subcommand_from usage' -l json
complete -c agentctl -n __fish_use_subcommand -a approvals -d 'calls that wait for your word'
complete -c agentctl -n '__fish_seen_subcommand_from approvals' -l all
complete -c agentctl -n '__fish_seen_subcommand_from approvals' -l remembered
complete -c agentctl -n '__fish_seen_subcommand_from approvals' -l revoke
complete -c agentctl -n '__fish_seen_subcommand_from approvals' -l json
complete -c agentctl -n __fish_use_subcommand -a approve -d 'allow a call: once, or with --remember for good'
complete -c agentctl -n '__fish_seen_subcommand_from approve' -l remember
complete -c agentctl -n '__fish_seen_subcommand_from approve' -l yes
complete -c agentctl -n '__fish_seen_subcommand_from approve' -l json
complete -c agentctl -n __fish_use_subcommand -a reject -d 'refuse a call; its run goes on without it'
complete -c agentctl -n '__fish_seen_subcommand_from reject' -l json
complete -c agentctl -n __fish_use_subcommand -a policy -d 'check, explain, test, backtest or suggest the policy, without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from policy' -a check
complete -c agentctl -n '__fish_seen_subcommand_from policy' -a explain
complete -c agentctl -n '__fish_seen_subcommand_from policy' -a test
complete -c agentctl -n '__fish_seen_subcommand_from policy' -a backtest
complete -c agentctl -n '__fish_seen_subcommand_from policy' -a suggest
complete -c agentctl -n '__fish_seen_subcommand_from policy' -l json
complete -c agentctl -n __fish_use_subcommand -a observe -d 'let a routine run on trial: nobody is asked, what is denied is recorded'
complete -c agentctl -n '__fish_seen_subcommand_from observe' -l for
complete -c agentctl -n '__fish_seen_subcommand_from observe' -l stop
complete -c agentctl -n '__fish_seen_subcommand_from observe' -l yes
complete -c agentctl -n '__fish_seen_subcommand_from observe' -l json
complete -c agentctl -n __fish_use_subcommand -a quarantine -d 'texts that were kept from the models'
complete -c agentctl -n '__fish_seen_subcommand_from quarantine' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from quarantine' -l json
complete -c agentctl -n __fish_use_subcommand -a audit -d 'every call and verdict; --verify proves that none was changed'
complete -c agentctl -n '__fish_seen_subcommand_from audit' -l run
complete -c agentctl -n '__fish_seen_subcommand_from audit' -l verify
complete -c agentctl -n '__fish_seen_subcommand_from audit' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from audit' -l json
complete -c agentctl -n __fish_use_subcommand -a seen -d 'what a routine with [dedupe] has reported; forget KEY: it may again'
complete -c agentctl -n '__fish_seen_subcommand_from seen' -a forget
complete -c agentctl -n '__fish_seen_subcommand_from seen' -l all
complete -c agentctl -n '__fish_seen_subcommand_from seen' -l limit
complete -c agentctl -n '__fish_seen_subcommand_from seen' -l json
complete -c agentctl -n __fish_use_subcommand -a memory -d 'search what runs left behind; forget, pin, export it'
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a search
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a list
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a show
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a forget
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a export
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a import
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a pin
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a unpin
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a stats
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a reindex
complete -c agentctl -n '__fish_seen_subcommand_from memory' -a check
complete -c agentctl -n '__fish_seen_subcommand_from memory' -l json
complete -c agentctl -n __fish_use_subcommand -a new -d 'write a routine: new NAME "weekdays at 9am", without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from new' -l json
complete -c agentctl -n __fish_use_subcommand -a edit -d 'change a routine'\''s file in your editor; it counts once nothing is wrong'
complete -c agentctl -n __fish_use_subcommand -a top -d 'what runs, waits and is next, live; q quits (extra top)'
complete -c agentctl -n __fish_use_subcommand -a ui -d 'a page to look at, in a browser of this machine'
complete -c agentctl -n '__fish_seen_subcommand_from ui' -l port
complete -c agentctl -n __fish_use_subcommand -a mcp -d 'tools of MCP servers, and what changed; serve: be one for coding agents'
complete -c agentctl -n '__fish_seen_subcommand_from mcp' -a list
complete -c agentctl -n '__fish_seen_subcommand_from mcp' -a accept
complete -c agentctl -n '__fish_seen_subcommand_from mcp' -a serve
complete -c agentctl -n '__fish_seen_subcommand_from mcp' -l yes
complete -c agentctl -n '__fish_seen_subcommand_from mcp' -l json
complete -c agentctl -n __fish_use_subcommand -a completion -d 'what bash, zsh or fish offers after TAB'
complete -c agentctl -n __fish_use_subcommand -a forecast -d 'what the coming days will take: tokens, dollars, time; caps, collisions'
complete -c agentctl -n '__fish_seen_subcommand_from forecast' -l days
complete -c agentctl -n '__fish_seen_subcommand_from forecast' -l json
complete -c agentctl -n __fish_use_subcommand -a metrics -d 'numbers for Prometheus; --textfile for its node_exporter'
complete -c agentctl -n '__fish_seen_subcommand_from metrics' -l textfile
complete -c agentctl -n '__fish_seen_subcommand_from metrics' -l json
complete -c agentctl -n __fish_use_subcommand -a backup -d 'copy all it knows into one file, while it runs, without a daemon too'
complete -c agentctl -n __fish_use_subcommand -a restore -d 'put a backup back; everything stands still until resume --all'
complete -c agentctl -n __fish_use_subcommand -a service -d 'install or uninstall a systemd unit, shown first'
complete -c agentctl -n '__fish_seen_subcommand_from service' -a install
complete -c agentctl -n '__fish_seen_subcommand_from service' -a uninstall
complete -c agentctl -n __fish_use_subcommand -a export -d 'routines with their history for another machine, without a daemon too'
complete -c agentctl -n __fish_use_subcommand -a import -d 'take in what was exported elsewhere, while no daemon runs'
complete -c agentctl -n __fish_use_subcommand -a import-crontab -d 'turn the lines of a crontab into routines, shown first, without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from import-crontab' -l json
complete -c agentctl -n __fish_use_subcommand -a rename -d 'give a routine another name; its history goes along'
complete -c agentctl -n '__fish_seen_subcommand_from rename' -l json
complete -c agentctl -n __fish_use_subcommand -a adopt -d 'make a routine yours that an agent made'
complete -c agentctl -n '__fish_seen_subcommand_from adopt' -l json
complete -c agentctl -n __fish_use_subcommand -a remove -d 'remove a routine that an agent made'
complete -c agentctl -n '__fish_seen_subcommand_from remove' -l json
complete -c agentctl -n __fish_use_subcommand -a stop -d 'stop the daemon once its runs have ended, and wait for that'
complete -c agentctl -n '__fish_seen_subcommand_from stop' -l now
complete -c agentctl -n '__fish_seen_subcommand_from stop' -l timeout
complete -c agentctl -n '__fish_seen_subcommand_from stop' -l json
complete -c agentctl -n __fish_use_subcommand -a reload -d 'read config, policy and routines again'
complete -c agentctl -n '__fish_seen_subcommand_from reload' -l json
complete -c agentctl -n __fish_use_subcommand -a validate -d 'check config, policy and routines, without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from validate' -l json
complete -c agentctl -n __fish_use_subcommand -a doctor -d 'look for what is wrong here, without a daemon too'
complete -c agentctl -n '__fish_seen_subcommand_from doctor' -l deep
complete -c agentctl -n '__fish_seen_subcommand_from doctor' -l json
complete -c agentctl -n __fish_use_subcommand -a version -d 'which version this is, and which one the daemon'
complete -c agentctl -n '__fish_seen_subcommand_from version' -l json
complete -c agentctl -n __fish_use_subcommand -a help -d 'the verbs one needs most, all of them with --all, or a verb'\''s options'
complete -c agentctl -n '__fish_seen_subcommand_from help' -l all
complete -c agentctl -n '__fish_seen_subcommand_from help' -l json
complete -c agentctl -n '__fish_seen_subcommand_from deliveries' -a '(agentctl deliveries --status failed --json 2>/dev/null | sed '\''s/{"id": /\\n&/g'\'' | sed -n '\''s/^{"id": "\\{0,1\\}\\([0-9A-Z]*\\).*/\\1/p'\'')'
complete -c agentctl -n '__fish_seen_subcommand_from ack' -a '(agentctl incidents --json 2>/dev/null | sed '\''s/{"id": /\\n&/g'\'' | sed -n '\''s/^{"id": "\\{0,1\\}\\([0-9A-Z]*\\).*/\\1/p'\'')'
complete -c agentctl -n '__fish_seen_subcommand_from adopt cancel edit events freeze inspect next pause preview rehearse remove rename replay report resume run runs seen show slots tell why' -a '(agentctl list --json 2>/dev/null | sed '\''s/{"name": "/\\n&/g'\'' | sed -n '\''s/^{"name": "\\([a-z0-9-]*\\)".*/\\1/p'\'')'
complete -c agentctl -n '__fish_seen_subcommand_from approvals approve reject' -a '(agentctl approvals --json 2>/dev/null | sed '\''s/{"id": /\\n&/g'\'' | sed -n '\''s/^{"id": "\\{0,1\\}\\([0-9A-Z]*\\).*/\\1/p'\'')'
complete -c agentctl -n '__fish_seen_subcommand_from audit cancel deliveries freeze inspect replay tell' -a '(agentctl runs --json 2>/dev/null | sed '\''s/{"id": /\\n&/g'\'' | sed -n '\''s/^{"id": "\\{0,1\\}\\([0-9A-Z]*\\).*/\\1/p'\'')'
complete -c agentd -n __fish_use_subcommand -a 'once worker init new setup validate doctor policy observe target replay freeze backup restore export import import-crontab service logs'
complete -c agentd -n '__fish_seen_subcommand_from once' -a '(agentctl list --json 2>/dev/null | sed '\''s/{"name": "/\\n&/g'\'' | sed -n '\''s/^{"name": "\\([a-z0-9-]*\\)".*/\\1/p'\'')'
