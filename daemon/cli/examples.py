"""Examples of every verb, for its help; a test parses each as the verb would.

Examples of a verb of agentd call agentctl if that has the verb, too: it works with a daemon and
without.
"""

from __future__ import annotations

# By program and verb: command lines, each with a remark or an empty string.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "agentctl status": (
        ("agentctl status", "which config, how many routines, what is wrong"),
        ("agentctl status --json", "the same for a script"),
    ),
    "agentctl list": (("agentctl list", "green: the last run and its delivery both went well"),),
    "agentctl show": (("agentctl show daily-report", ""),),
    "agentctl preview": (
        (
            "agentctl preview daily-report",
            "the prompt, folded, with about how many tokens each part takes",
        ),
        ("agentctl preview daily-report --full", "every word of it"),
    ),
    "agentctl next": (
        ("agentctl next", "the next ten starts of all routines"),
        ("agentctl next daily-report -n 3", ""),
        ("agentctl next --days 60 --ics", "for a calendar: > agentd.ics"),
    ),
    "agentctl why": (
        ("agentctl why heartbeat", "the last slot, or the next one"),
        ('agentctl why heartbeat --at "yesterday 09:00"', "why it did not run then"),
    ),
    "agentctl run": (
        ("agentctl run daily-report", "shows its steps, ends with the report; Ctrl-C detaches"),
        ("agentctl run daily-report --detach", "prints the run's id and returns"),
    ),
    "agentctl ask": (
        ("agentctl ask what failed tonight", "in the conversation that goes on"),
        (
            "agentctl ask --session work --new who asked for the report",
            "in one of its own, from the start",
        ),
    ),
    "agentctl tell": (("agentctl tell 7QXZM only the disks, please", "at its next step"),),
    "agentctl runs": (
        ("agentctl runs", "the last twenty"),
        ("agentctl runs daily-report --status failed -n 5", ""),
    ),
    "agentctl inspect": (
        ("agentctl inspect last", "the newest run"),
        ("agentctl inspect daily-report --full", "the last one of a routine, nothing folded"),
        ("agentctl inspect 7QXZM --html run.html", "as a page to pass on"),
    ),
    "agentctl logs": (
        ("agentctl logs -f --level warning", "what goes wrong from now on"),
        ("agentctl logs --routine daily-report --since 2d", ""),
    ),
    "agentctl events": (
        ("agentctl events", "what runs do, as it happens, until Ctrl-C"),
        ("agentctl events daily-report --json", "of one routine, a line of JSON each"),
    ),
    "agentctl cancel": (("agentctl cancel 7QXZM", "stops its tools, then says so"),),
    "agentctl pause": (
        ("agentctl pause heartbeat", "until you say resume"),
        ('agentctl pause heartbeat --until "tomorrow 09:00"', ""),
        ("agentctl pause --all --until 2h", "nothing starts by itself for two hours"),
    ),
    "agentctl resume": (
        ("agentctl resume heartbeat", ""),
        ("agentctl resume --all", "after a restore"),
    ),
    "agentctl slots": (
        ("agentctl slots heartbeat -n 50", "ran, late, skipped or missed, with the reason"),
    ),
    "agentctl deliveries": (
        ("agentctl deliveries --status failed", "reports that arrived nowhere"),
        ("agentctl deliveries retry 12", "send that one again"),
        ("agentctl deliveries drop 12", "give it up"),
    ),
    "agentctl incidents": (
        ("agentctl incidents", "what is wrong now"),
        ("agentctl incidents --all", "also what is over"),
    ),
    "agentctl ack": (("agentctl ack 3", "no more reminders of incident 3 until it is over"),),
    "agentctl usage": (
        ("agentctl usage", "by routine, of the last 30 days"),
        ("agentctl usage --by model --days 7", ""),
    ),
    "agentctl approvals": (
        ("agentctl approvals", "what waits for your word"),
        ("agentctl approvals 4KD2P", "one call, however long it is"),
        ("agentctl approvals --remembered", "what you have allowed for good"),
        ("agentctl approvals --revoke 4KD2P", "not any more"),
    ),
    "agentctl approve": (
        ("agentctl approve 4KD2P", "this call, this once"),
        ("agentctl approve 4KD2P --remember", "for good: shows the rule first, and asks"),
    ),
    "agentctl reject": (("agentctl reject 4KD2P", "the run goes on without it"),),
    "agentctl quarantine": (
        ("agentctl quarantine", "what was kept from the models"),
        ("agentctl quarantine 4KD2P", "the text itself"),
    ),
    "agentctl audit": (
        ("agentctl audit --run 7QXZM", "every call of a run and the rule that judged it"),
        ("agentctl audit --verify", "that nobody has changed a row"),
    ),
    "agentctl seen": (
        ("agentctl seen releases", "the latest first"),
        (
            "agentctl seen releases forget https://news.example/1",
            "it is new again when it is found again",
        ),
        ("agentctl seen releases forget --all", ""),
    ),
    "agentctl memory": (
        ("agentctl memory search backup failed", ""),
        ("agentctl memory stats", ""),
    ),
    "agentctl memory search": (
        ("agentctl memory search when did the backup fail", ""),
        (
            "agentctl memory search disk --expand 2 --why",
            "with what stood around it, and why it was found",
        ),
    ),
    "agentctl memory list": (("agentctl memory list --category core", ""),),
    "agentctl memory show": (("agentctl memory show owner:name", ""),),
    "agentctl memory forget": (
        ("agentctl memory forget --query 0123-account", "shows what would go, and asks"),
        ("agentctl memory forget --before 90d --yes", ""),
    ),
    "agentctl memory export": (("agentctl memory export memory.jsonl", ""),),
    "agentctl memory import": (("agentctl memory import memory.jsonl", ""),),
    "agentctl memory pin": (("agentctl memory pin owner:name", ""),),
    "agentctl memory unpin": (("agentctl memory unpin owner:name", ""),),
    "agentctl memory stats": (("agentctl memory stats", ""),),
    "agentctl memory reindex": (("agentctl memory reindex", "after another embedder was chosen"),),
    "agentctl memory check": (("agentctl memory check", ""),),
    "agentctl top": (("agentctl top", "q quits"),),
    "agentctl mcp": (
        ("agentctl mcp", "what each server offers, and what changed since it was accepted"),
        ("agentctl mcp accept calendar", "shows what changed, and asks"),
        ("agentctl mcp serve", "a coding agent starts it; docs/mcp.md has its configuration"),
    ),
    "agentctl ui": (
        ("agentctl ui", "prints the address; Ctrl-C ends it"),
        ("agentctl ui --port 8080", ""),
    ),
    "agentctl completion": (
        ("agentctl completion bash", "> ~/.local/share/bash-completion/completions/agentctl"),
        ("agentctl completion fish", "> ~/.config/fish/completions/agentctl.fish"),
    ),
    "agentctl forecast": (("agentctl forecast --days 7", "tokens, dollars and time, day by day"),),
    "agentctl metrics": (
        ("agentctl metrics", ""),
        (
            "agentctl metrics --textfile /var/lib/prometheus/node-exporter/agentd.prom",
            "from a timer",
        ),
    ),
    "agentctl rename": (
        ("agentctl rename heartbeat pulse", "the file, its history and what it remembers"),
    ),
    "agentctl adopt": (
        ("agentctl adopt disk-watch", "moves its file beside yours; you change it from then on"),
    ),
    "agentctl remove": (("agentctl remove disk-watch", "its history stays"),),
    "agentctl report": (
        ("agentctl report", "the newest of all routines"),
        ("agentctl report daily-report", "into a pipe: the Markdown that was delivered"),
    ),
    "agentctl edit": (
        ("agentctl edit daily-report", "in $VISUAL or $EDITOR; faults are named with their lines"),
    ),
    "agentctl stop": (
        ("agentctl stop", "says which runs it waits for; 0 once the daemon has ended"),
        ("agentctl stop --now", "runs are suspended, and go on at the next start"),
    ),
    "agentctl replay": (
        (
            "agentctl replay 7QXZM",
            "asks no model and starts no tool; exit 1 where it comes out otherwise",
        ),
        ("agentctl replay 7QXZM --policy draft.toml", "what would have been denied"),
        ("agentctl replay tests/cases/disk-full", "a frozen run"),
    ),
    "agentctl rehearse": (
        (
            "agentctl rehearse inbox-watch",
            "the model is real, what it would write, send or run is shown",
        ),
        ("agentctl rehearse --approve 7QXZM", "let a routine with rehearse_first run like that"),
    ),
    "agentctl freeze": (("agentctl freeze 7QXZM tests/cases/disk-full", ""),),
    "agentctl reload": (("agentctl reload", "says what has changed, and what is wrong"),),
    "agentctl version": (("agentctl version", "also the daemon's: they differ after an upgrade"),),
    "agentctl help": (("agentctl help run", ""), ("agentctl help --all", "every verb")),
    "agentd": (
        ("agentd", "start; what it found and what it will do is printed"),
        (
            "agentd --config ~/agentd/config.toml --state ~/agentd/state",
            "apart from everything else",
        ),
    ),
    "agentd once": (
        ("agentd once daily-report", "from cron, CI or Kubernetes: its exit code is the run's"),
        ("agentd once daily-report --state /tmp/try", "with a state of its own"),
    ),
    "agentd worker": (
        ("agentd worker", "executes runs that daemons on the same database start"),
        ("agentd worker --state /var/lib/agentd-2", "a second one on this machine"),
    ),
    "agentd init": (("agentd init ~/.config/agentd", "what is there already is left alone"),),
    "agentd new": (
        ('agentctl new backup-check weekdays at 9am --prompt "Did last night\'s backup work?"', ""),
        ("agentctl new morning every day at 7 --recipe mail-report --to mail", ""),
        ("agentctl new tick every 2 hours --stdout", "print the file, write nothing"),
    ),
    "agentd validate": (
        ("agentctl validate", "the files of the daemon, or those that it would use"),
        ("agentctl validate ~/agentd", "a folder with a config.toml; exit 1 if there is a fault"),
    ),
    "agentd doctor": (
        ("agentctl doctor", "each thing that is wrong, with its fix"),
        ("agentctl doctor --deep", "all of the database, too: some seconds for a large one"),
        ("agentctl doctor --json", ""),
    ),
    "agentd setup": (
        ("agentctl setup", "asks; each question has a flag"),
        ("agentctl setup --provider claude --key-file key --model claude-haiku-4-5", ""),
        ("agentctl setup --provider ollama --yes", "the first of its models"),
        ("agentctl setup --target relay --to ada@example.org --yes", "mail by localhost:25"),
        ('agentctl setup --routine backups --when "weekdays at 9am" --prompt "Did they work?"', ""),
    ),
    "agentd target": (
        ("agentctl target test mail", "a short message, now; exit 1 with what to do if it fails"),
    ),
    "agentd policy": (("agentctl policy check", ""), ("agentctl policy explain -- git push", "")),
    "agentd policy check": (
        ("agentctl policy check", "the policy in force"),
        ("agentctl policy check draft.toml", "before it is"),
    ),
    "agentd policy explain": (
        ("agentctl policy explain -- git push origin main", "allowed? by which rule?"),
        (
            (
                "agentctl policy explain --routine inbox-watch --tainted --tool http_request "
                "https://example.org"
            ),
            "",
        ),
    ),
    "agentd policy test": (
        ("agentctl policy test cases.jsonl", "exit 1 if one is judged otherwise"),
    ),
    "agentd policy backtest": (("agentctl policy backtest draft.toml --since 7d", ""),),
    "agentd policy suggest": (("agentctl policy suggest daily-report --since 90d", ""),),
    "agentd observe": (
        ("agentctl observe daily-report --for 7d", "shows the change of policy.toml, and asks"),
        ("agentctl policy suggest daily-report", "later: rules for what was denied"),
        ("agentctl observe daily-report --stop", ""),
    ),
    "agentd backup": (("agentctl backup ~/agentd-2026-11-20.db", "while it runs"),),
    "agentd restore": (
        ("agentctl restore ~/agentd-2026-11-20.db", "while no daemon runs"),
        (
            "agentctl restore ~/agentd-2026-11-20.db --definitions ~/.config/agentd",
            "config, policy, routines too",
        ),
    ),
    "agentd export": (
        ("agentctl export moving.db", "all routines"),
        ("agentctl export moving.db daily-report heartbeat", ""),
    ),
    "agentd import": (
        ("agentctl import moving.db", "while no daemon runs; what is here already is left alone"),
    ),
    "agentd import-crontab": (
        ("agentctl import-crontab", "what your own crontab becomes; nothing is written"),
        ("agentctl import-crontab --write --to mail", "its lines without MAILTO go to mail"),
        ("agentctl import-crontab /etc/crontab", "those of its lines that are yours"),
    ),
    "agentd service": (
        ("agentctl service install --user --print", "what would be written"),
        ("agentctl service install --user", "shows it, and asks"),
        ("agentctl service uninstall --user", ""),
    ),
}


# Remarks of command lines up to this length are aligned; behind a longer one, two spaces suffice.
_MAX_ALIGNED_CHARACTERS = 50


def examples_of(prog: str) -> str:
    """Return the examples of a verb as the end of its help; empty where there are none.

    `prog` is the program and verb: `agentctl memory search`.
    """
    program, _, verb = prog.partition(" ")
    other_program = "agentctl" if program == "agentd" else "agentd"
    examples = EXAMPLES.get(prog) or EXAMPLES.get(f"{other_program} {verb}", ())
    if not examples:
        return ""
    width = max(
        (
            len(command)
            for command, remark in examples
            if remark and len(command) <= _MAX_ALIGNED_CHARACTERS
        ),
        default=0,
    )
    lines = [
        f"  {command:<{width}}  # {remark}" if remark else f"  {command}"
        for command, remark in examples
    ]
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["", title, *lines, ""])
