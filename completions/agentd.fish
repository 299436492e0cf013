# fish looks for completions by the name of a command; those of agentd stand beside those of agentctl
source (status dirname)/agentctl.fish
