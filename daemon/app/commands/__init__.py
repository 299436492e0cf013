"""What agentd does without a daemon, a file for each command."""
