# agentctl completion bash > ~/.local/share/bash-completion/completions/agentctl
_agentctl() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="status list show preview next why run ask tell runs inspect report replay rehearse freeze logs events cancel pause resume slots deliveries incidents setup target ack usage approvals approve reject policy observe quarantine audit seen memory new edit top ui mcp completion forecast metrics backup restore service export import import-crontab rename adopt remove stop reload validate doctor version help"
    else
        case $verb in
            status) words="--json" ;;
            list) words="--json" ;;
            show) words="--json" ;;
            preview) words="--full --json" ;;
            next) words="--limit --days --ics --json" ;;
            why) words="--at --json" ;;
            run) words="--input --tainted --gate --detach --again --json" ;;
            ask) words="--session --new --detach --json" ;;
            tell) words="--detach --json" ;;
            runs) words="--status --limit --json" ;;
            inspect) words="--full --follow --html --json" ;;
            report) words="--json" ;;
            replay) words="--model --prompt --policy --json" ;;
            rehearse) words="--approve --json" ;;
            freeze) words="--json" ;;
            logs) words="--follow --level --routine --run --since --json" ;;
            events) words="--follow --json" ;;
            cancel) words="--json" ;;
            pause) words="--all --until --json" ;;
            resume) words="--all --json" ;;
            slots) words="--limit --json" ;;
            deliveries) words="retry drop --run --status --limit --json" ;;
            incidents) words="--all --limit --json" ;;
            setup) words="--json" ;;
            target) words="test --json" ;;
            ack) words="--json" ;;
            usage) words="--by --days --json" ;;
            approvals) words="--all --remembered --revoke --json" ;;
            approve) words="--remember --yes --json" ;;
            reject) words="--json" ;;
            policy) words="check explain test backtest suggest --json" ;;
            observe) words="--for --stop --yes --json" ;;
            quarantine) words="--limit --json" ;;
            audit) words="--run --verify --limit --json" ;;
            seen) words="forget --all --limit --json" ;;
            memory) words="search list show forget export import pin unpin stats reindex check --json" ;;
            new) words="--json" ;;
            edit) words="" ;;
            top) words="" ;;
            ui) words="--port" ;;
            mcp) words="list accept serve --yes --json" ;;
            completion) words="" ;;
            forecast) words="--days --json" ;;
            metrics) words="--textfile --json" ;;
            backup) words="" ;;
            restore) words="" ;;
            service) words="install uninstall" ;;
            export) words="" ;;
            import) words="" ;;
            import-crontab) words="--json" ;;
            rename) words="--json" ;;
            adopt) words="--json" ;;
            remove) words="--json" ;;
            stop) words="--now --timeout --json" ;;
            reload) words="--json" ;;
            validate) words="--json" ;;
            doctor) words="--deep --json" ;;
            version) words="--json" ;;
            help) words="--all --json" ;;
        esac
        case $verb in deliveries) words="$words $(agentctl deliveries --status failed --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')" ;; esac
        case $verb in ack) words="$words $(agentctl incidents --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')" ;; esac
        case $verb in adopt|cancel|edit|events|freeze|inspect|next|pause|preview|rehearse|remove|rename|replay|report|resume|run|runs|seen|show|slots|tell|why) words="$words $(agentctl list --json 2>/dev/null | sed 's/{"name": "/\n&/g' | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p')" ;; esac
        case $verb in approvals|approve|reject) words="$words $(agentctl approvals --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')" ;; esac
        case $verb in audit|cancel|deliveries|freeze|inspect|replay|tell) words="$words $(agentctl runs --json 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p')" ;; esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _agentctl agentctl
_agentd() {
    local word=${COMP_WORDS[COMP_CWORD]} words="--config --state"
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="once worker init new setup validate doctor policy observe target replay freeze backup restore export import import-crontab service logs --config --state --version --help"
    elif [ "${COMP_WORDS[1]}" = once ]; then
        words="$words $(agentctl list --json 2>/dev/null | sed 's/{"name": "/\n&/g' | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p')"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _agentd agentd
