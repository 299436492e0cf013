# bash looks for completions by the name of a command; those of agentd stand beside those of agentctl
. "${BASH_SOURCE[0]%/*}/agentctl"
