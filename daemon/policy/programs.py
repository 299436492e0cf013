"""The programs that a read-only report needs, each with the options that only read, and that end by themselves.

Written from the manuals of GNU coreutils 9, grep 3, findutils 4, diffutils 3, util-linux 2.38, procps 4, iproute2 6,
systemd 252, jq 1.6 and ripgrep 13. Left out on purpose, so that they are refused: what writes a file (sort -o), runs
a program (rg --pre, sort --compress-program), names its files in a file (wc --files0-from), follows links while it
walks (grep -R), waits for ever (tail -f), asks the network (who --lookup), shows environments (ps e).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from daemon.policy.lexer import Unreadable, listed
from daemon.policy.options import Parsed, Program


def _either_case(pattern: str) -> str:
    """Return a glob that takes both cases of each letter: what must not be read is not read as .ENV either."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else c for c in pattern)


def _skip_in_grep(pattern: str, folder: bool) -> Sequence[str]:
    name = _either_case(pattern)
    return (f"--exclude-dir={name}",) if folder else (f"--exclude={name}", f"--exclude-dir={name}")


def _skip_in_rg(pattern: str, folder: bool) -> Sequence[str]:
    return (f"--iglob=!**/{pattern}/**" if folder else f"--iglob=!**/{pattern}",)


def _skip_in_diff(pattern: str, folder: bool) -> Sequence[str]:
    return (f"--exclude={_either_case(pattern)}",)


def _grep_operands(parsed: Parsed) -> str:
    paths = "TREE*" if parsed.has("-r", "--recursive") else "PATH*"
    return paths if parsed.has("-e", "--regexp", "-f", "--file") else f"TEXT {paths}"


def _rg_operands(parsed: Parsed) -> str:
    return "TREE*" if parsed.has("--files", "-e", "--regexp", "-f", "--file") else "TEXT TREE*"


def _diff_operands(parsed: Parsed) -> str:
    return "TREE TREE" if parsed.has("-r", "--recursive") else "PATH PATH"


def _diff_without_links(parsed: Parsed) -> Sequence[str]:
    return ("--no-dereference",) if parsed.has("-r", "--recursive") else ()


def _only_a_format(parsed: Parsed) -> None:
    if parsed.operands and not parsed.operands[0].text.startswith("+"):
        raise Unreadable("date with a bare operand sets the clock", "write date +FORMAT, or date -d TEXT")


_LONG_NUMBER = re.compile(r"%[^A-Za-z%]*(?:\d{4,}|\*)")


def _bounded_format(parsed: Parsed) -> None:
    if parsed.operands and _LONG_NUMBER.search(parsed.operands[0].text):
        raise Unreadable("printf with so wide a field would flood the output", "give a width of at most 999")


_SEQ_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d{1,3})?")


def _bounded_sequence(parsed: Parsed) -> None:
    for word in parsed.operands:
        if not _SEQ_NUMBER.fullmatch(word.text):
            raise Unreadable(f"seq {word.text} would not end soon", "seq takes plain numbers of at most six digits")


def _bounded_repetition(parsed: Parsed) -> None:
    if len(parsed.operands) == 1:
        raise Unreadable("vmstat DELAY goes on for ever", "write vmstat, or vmstat DELAY COUNT")
    if any(not re.fullmatch(r"[1-9]\d?", word.text) for word in parsed.operands):
        raise Unreadable("vmstat would take too long", "give a delay and a count below 100")


def _list_only_sort(parsed: Parsed) -> None:
    if any(re.fullmatch(r"\+\d.*", word.text) for word in parsed.operands):
        raise Unreadable("sort +N is the obsolete form of a key", "write sort -k N")


# Reads modules or the environment, or might never end; as a field (.env) a word is just a name.
_JQ_WORDS = re.compile(
    r"(?<![.\w$])(?:import|include|modulemeta|env|def|repeat|while|until|infinite)\b|\$ENV|\brecurse\s*\("
    r"|\brange\s*\([^)]*(?:\d{7,}|[eE]\+?\d)"
)


def _plain_filter(parsed: Parsed) -> None:
    if not parsed.operands:
        raise Unreadable("jq lacks its filter", "write jq FILTER FILE")
    if match := _JQ_WORDS.search(parsed.operands[0].text):
        raise Unreadable(f"jq {match[0]} is not allowed: it could read elsewhere, or never end", "use plain filters")


_WHO_AM_I = (("am", "i"), ("am", "I"), ("mom", "likes"))


def _nobody_elses_record(parsed: Parsed) -> None:
    words = tuple(word.text for word in parsed.operands)
    if words and words not in _WHO_AM_I:
        raise Unreadable(f"who {words[0]} reads that file as a record of logins", "write who, or who am i")


_SS_WORD = re.compile(
    r"state|exclude|all|connected|synchronized|bucket|big|established|syn-sent|syn-recv|fin-wait-[12]|time-wait|closed"
    r"|close-wait|last-ack|listening|listen|closing|sport|dport|and|or|not|[=!<>]=?|eq|ne|lt|le|gt|ge|[()]|:\d{1,5}"
)


def _ports_and_states(parsed: Parsed) -> None:
    for word in parsed.operands:
        if not _SS_WORD.fullmatch(word.text):
            raise Unreadable(f"ss {word.text} might look a name up", "filter by state and by port number, like :22")


_VERBS = listed("""
    status is-active is-enabled is-failed is-system-running get-default list-units list-unit-files list-timers
    list-sockets list-jobs list-automounts list-paths list-dependencies
    """)


def _looking_verb(parsed: Parsed) -> None:
    if parsed.operands and parsed.operands[0].text not in _VERBS:
        raise Unreadable(
            f"systemctl {parsed.operands[0].text} is not known here to change nothing",
            "systemctl takes " + ", ".join(sorted(_VERBS)),
        )


_LIST = """
    -1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ -I:TEXT -T:NUM -w:NUM --all --almost-all --author --escape
    --block-size=WORD --ignore-backups --color[=WORD] --directory --classify[=WORD] --file-type --format=WORD
    --full-time --group-directories-first --no-group --human-readable --si --hide=TEXT --hyperlink[=WORD]
    --indicator-style=WORD --inode --ignore=TEXT --kibibytes --literal --numeric-uid-gid --hide-control-chars
    --show-control-chars --quote-name --quoting-style=WORD --reverse --recursive --size --sort=WORD --time=WORD
    --time-style=TEXT --tabsize=NUM --width=NUM --context --zero
    """
_SUMS = "-btz --binary --text --tag --zero"
_GREP = """
    -EFGPivwxcLlqsobHhnTuUzZarI -NUM -e:TEXT -f:PATH -m:NUM -A:NUM -B:NUM -C:NUM --extended-regexp --fixed-strings
    --basic-regexp --perl-regexp --regexp=TEXT --file=PATH --ignore-case --no-ignore-case --invert-match
    --word-regexp --line-regexp --count --color[=WORD] --colour[=WORD] --files-without-match --files-with-matches
    --max-count=NUM --only-matching --quiet --silent --no-messages --byte-offset --with-filename --no-filename
    --label=TEXT --line-number --initial-tab --null --null-data --after-context=NUM --before-context=NUM
    --context[=NUM] --text --binary-files=WORD --exclude=TEXT --include=TEXT --exclude-dir=TEXT --recursive
    --line-buffered --group-separator=TEXT --no-group-separator
    """
_RG = """
    -abcFHhiIlnNopPqsSUvwx0 -A:NUM -B:NUM -C:NUM -e:TEXT -E:WORD -f:PATH -g:TEXT -j:NUM -m:NUM -M:NUM -r:TEXT
    -t:WORD -T:WORD -d:NUM --after-context=NUM --before-context=NUM --context=NUM --regexp=TEXT --file=PATH
    --glob=TEXT --iglob=TEXT --max-count=NUM --max-columns=NUM --replace=TEXT --type=WORD --type-not=WORD
    --max-depth=NUM --case-sensitive --ignore-case --smart-case --color=WORD --colors=TEXT --column --no-column
    --count --count-matches --files --files-with-matches --files-without-match --fixed-strings --heading
    --no-heading --invert-match --json --line-number --no-line-number --line-regexp --word-regexp --multiline
    --multiline-dotall --no-filename --with-filename --no-messages --null --only-matching --passthru --pcre2
    --pretty --quiet --sort=WORD --sortr=WORD --stats --text --trim --type-list --vimgrep --threads=NUM
    --max-filesize=WORD --no-config --one-file-system --byte-offset --crlf --encoding=WORD --no-unicode
    """
_DIFF = """
    -aBbcdEeFHiNnpqrstTuwyZ -U:NUM -C:NUM -I:TEXT -W:NUM -x:TEXT -F:TEXT -L:TEXT -NUM --normal --brief
    --report-identical-files --context[=NUM] --unified[=NUM] --ed --rcs --side-by-side --width=NUM --left-column
    --suppress-common-lines --show-c-function --show-function-line=TEXT --label=TEXT --expand-tabs --initial-tab
    --tabsize=NUM --suppress-blank-empty --recursive --no-dereference --new-file --unidirectional-new-file
    --ignore-file-name-case --no-ignore-file-name-case --exclude=TEXT --ignore-case --ignore-tab-expansion
    --ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines
    --ignore-matching-lines=TEXT --text --strip-trailing-cr --minimal --horizon-lines=NUM --speed-large-files
    --color[=WORD]
    """
_SORT = """
    -bdfgiMhnRrVcCmsuz -k:WORD -t:TEXT --ignore-leading-blanks --dictionary-order --ignore-case
    --general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort --random-sort
    --reverse --sort=WORD --version-sort --check[=WORD] --debug --key=WORD --merge --stable --field-separator=TEXT
    --unique --zero-terminated
    """
_STAT = "-Lft -c:TEXT --dereference --file-system --cached=WORD --format=TEXT --printf=TEXT --terse"
_DU = """
    -0abcghklmsSx -B:WORD -d:NUM -t:WORD --null --all --apparent-size --block-size=WORD --bytes --total
    --max-depth=NUM --human-readable --inodes --no-dereference --separate-dirs --si --summarize --threshold=WORD
    --time[=WORD] --time-style=TEXT --exclude=TEXT --one-file-system
    """
_DF = """
    -ahHikmlPT -B:WORD -t:WORD -x:WORD --all --block-size=WORD --human-readable --si --inodes --local --no-sync
    --output[=WORD] --portability --total --type=WORD --print-type --exclude-type=WORD
    """
_DMESG = """
    -deHhkLPrtTuxJSV -f:WORD -l:WORD -s:NUM --color[=WORD] --ctime --decode --facility=WORD --force-prefix --human
    --json --kernel --level=WORD --nopager --notime --noescape --raw --reltime --show-delta --since=DATE --syslog
    --time-format=WORD --until=DATE --userspace --buffer-size=NUM
    """
_LSBLK = """
    -abdDfilJmnoOpPrsStTz -e:WORD -I:WORD -o:WORD -x:WORD -w:NUM --all --bytes --nodeps --discard --dedup=WORD
    --exclude=WORD --fs --include=WORD --ascii --json --list --merge --perms --noheadings --output=WORD
    --output-all --paths --pairs --raw --inverse --scsi --sort=WORD --tree[=WORD] --topology --zoned
    """
_SS = """
    -aHlnoemipstuxw0d46ZTSMO -f:WORD -A:WORD --all --no-header --oneline --numeric --listening --options
    --extended --memory --processes --threads --info --summary --tos --cgroup --ipv4 --ipv6 --packet --tcp --sctp
    --udp --dccp --raw --unix --vsock --family=WORD --query=WORD --socket=WORD --mptcp
    """
_JOURNALCTL = """
    -krxaqemlN -b?WORD -n?WORD -NUM -S:DATE -U:DATE -u:UNIT -t:TEXT -p:WORD -g:TEXT -o:WORD -c:TEXT -F:WORD
    --system --user --merge --since=DATE --until=DATE --cursor=TEXT --after-cursor=TEXT --boot[=WORD] --unit=UNIT
    --user-unit=UNIT --identifier=TEXT --priority=WORD --facility=WORD --grep=TEXT --case-sensitive[=WORD] --dmesg
    --output=WORD --output-fields=WORD --lines[=WORD] --reverse --show-cursor --utc --catalog --no-hostname
    --no-full --full --all --quiet --no-pager --pager-end --fields --field=WORD --list-boots --disk-usage --header
    --no-tail
    """
_SYSTEMCTL = """
    -alqr -t:WORD -n:NUM -o:WORD --system --user --type=WORD --state=WORD --failed --all --full --recursive
    --reverse --with-dependencies --show-types --quiet --no-legend --legend=WORD --no-pager --plain --lines=NUM
    --output=WORD --after --before
    """
_JQ = """
    -cnrjaSCMeRs --compact-output --null-input --raw-output --join-output --ascii-output --sort-keys
    --color-output --monochrome-output --exit-status --raw-input --slurp --tab --indent=NUM --seq --stream
    --unbuffered
    """

TABLE: tuple[Program, ...] = (
    # text
    Program(
        "cat",
        """
    -AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs --show-nonprinting
    """,
        "PATH*",
    ),
    Program("tac", "-br -s:TEXT --before --regex --separator=TEXT", "PATH*"),
    Program(
        "head", "-qvz -NUM -c:NUM -n:NUM --bytes=NUM --lines=NUM --quiet --silent --verbose --zero-terminated", "PATH*"
    ),
    Program(
        "tail", "-qvz -NUM -c:NUM -n:NUM --bytes=NUM --lines=NUM --quiet --silent --verbose --zero-terminated", "PATH*"
    ),
    Program("wc", "-cmlLw --bytes --chars --lines --max-line-length --words --total=WORD", "PATH*"),
    Program(
        "nl",
        """
    -p -b:TEXT -d:TEXT -f:TEXT -h:TEXT -i:NUM -l:NUM -n:WORD -s:TEXT -v:NUM -w:NUM --body-numbering=TEXT
    --section-delimiter=TEXT --footer-numbering=TEXT --header-numbering=TEXT --line-increment=NUM
    --join-blank-lines=NUM --number-format=WORD --no-renumber --number-separator=TEXT --starting-line-number=NUM
    --number-width=NUM
    """,
        "PATH*",
    ),
    Program("rev", "-0 --zero", "PATH*"),
    Program("fold", "-bs -NUM -w:NUM --bytes --spaces --width=NUM", "PATH*"),
    Program(
        "cut",
        """
    -nsz -b:WORD -c:WORD -d:TEXT -f:WORD --bytes=WORD --characters=WORD --delimiter=TEXT --fields=WORD
    --complement --only-delimited --output-delimiter=TEXT --zero-terminated
    """,
        "PATH*",
    ),
    Program("paste", "-sz -d:TEXT --delimiters=TEXT --serial --zero-terminated", "PATH*"),
    Program(
        "column",
        """
    -detxJL -c:NUM -E:TEXT -H:WORD -l:NUM -N:TEXT -n:TEXT -o:TEXT -O:TEXT -r:TEXT -R:WORD -s:TEXT -T:WORD -W:WORD
    --table --table-name=TEXT --table-columns=TEXT --table-columns-limit=NUM --table-noheadings --table-right=WORD
    --table-truncate=WORD --table-wrap=WORD --table-hide=WORD --table-order=TEXT --json --keep-empty-lines
    --output-separator=TEXT --output-width=NUM --separator=TEXT --fillrows
    """,
        "PATH*",
    ),
    Program("tr", "-cCdst --complement --delete --squeeze-repeats --truncate-set1", "TEXT TEXT?"),
    Program("sort", _SORT, "PATH*", check=_list_only_sort, answers=(1,)),
    Program(
        "uniq",
        """
    -cdDiuz -NUM -f:NUM -s:NUM -w:NUM --count --repeated --all-repeated[=WORD] --skip-fields=NUM --group[=WORD]
    --ignore-case --skip-chars=NUM --unique --zero-terminated --check-chars=NUM
    """,
        "PATH?",
    ),
    Program(
        "comm", "-123z --check-order --nocheck-order --output-delimiter=TEXT --total --zero-terminated", "PATH PATH"
    ),
    Program(
        "cmp",
        "-bls -i:WORD -n:NUM --print-bytes --verbose --ignore-initial=WORD --bytes=NUM --quiet --silent",
        "PATH PATH NUM? NUM?",
        answers=(1,),
    ),
    Program("diff", _DIFF, _diff_operands, add=_diff_without_links, answers=(1,), excludes=_skip_in_diff),
    Program("grep", _GREP, _grep_operands, default=".", answers=(1,), excludes=_skip_in_grep),
    Program("rg", _RG, _rg_operands, default=".", answers=(1,), excludes=_skip_in_rg),
    Program("jq", _JQ, "TEXT PATH*", check=_plain_filter, answers=(1, 4)),
    Program("md5sum", _SUMS, "PATH*"),
    Program("sha1sum", _SUMS, "PATH*"),
    Program("sha256sum", _SUMS, "PATH*"),
    Program("sha512sum", _SUMS, "PATH*"),
    # files
    Program("ls", _LIST, "PATH*", default="."),
    Program("stat", _STAT, "PATH+"),
    Program(
        "file",
        """
    -bhikLnNr0 -F:TEXT --brief --no-dereference --mime --mime-type --mime-encoding --keep-going --dereference
    --no-buffer --no-pad --raw --separator=TEXT --print0 --extension --apple
    """,
        "PATH+",
    ),
    Program("du", _DU, "PATH*", default="."),
    Program("df", _DF, "MOUNT*"),
    Program(
        "realpath",
        """
    -eLmPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet --strip --no-symlinks
    --zero --relative-to=PATH --relative-base=PATH
    """,
        "PATH+",
    ),
    Program(
        "readlink",
        """
    -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent
    --verbose --zero
    """,
        "PATH+",
    ),
    Program("basename", "-az -s:TEXT --multiple --suffix=TEXT --zero", "TEXT+"),
    Program("dirname", "-z --zero", "TEXT+"),
    Program("which", "-as --all", "TEXT+", answers=(1,)),
    Program("pwd", "-LP --logical --physical"),
    # text of one's own
    Program("printf", "", "TEXT ANY*", check=_bounded_format),
    Program(
        "seq",
        "-w -f:TEXT -s:TEXT --format=TEXT --separator=TEXT --equal-width",
        "TEXT TEXT? TEXT?",
        check=_bounded_sequence,
        negative=True,
    ),
    Program("true"),
    Program("false", answers=(1,)),
    # the machine
    Program(
        "date",
        """
    -uR -I?WORD -d:DATE -r:PATH --date=DATE --iso-8601[=WORD] --rfc-3339=WORD --rfc-email --utc --universal
    --reference=PATH --debug --resolution
    """,
        "TEXT?",
        check=_only_a_format,
    ),
    Program(
        "uname",
        """
    -asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor
    --hardware-platform --operating-system
    """,
    ),
    Program("uptime", "-ps --pretty --since"),
    Program("hostname"),
    Program("nproc", "--all --ignore=NUM"),
    Program(
        "free",
        """
    -bkmghtwlv --bytes --kibi --mebi --gibi --tebi --kilo --mega --giga --tera --human --si --lohi --total --wide
    --committed
    """,
    ),
    Program(
        "vmstat",
        """
    -adDfmnstwy -p:WORD -S:WORD --active --disk --disk-sum --forks --slabs --one-header --stats --timestamp --wide
    --no-first --unit=WORD --partition=WORD
    """,
        "NUM? NUM?",
        check=_bounded_repetition,
    ),
    Program(
        "lscpu",
        """
    -abcCeJpxyB -e?TEXT -p?TEXT -C?TEXT --all --online --bytes --caches[=TEXT] --offline --extended[=TEXT] --json
    --parse[=TEXT] --hex --physical --output-all
    """,
    ),
    Program("lsblk", _LSBLK, "DEVICE*"),
    Program("dmesg", _DMESG),
    Program("id", "-aGgnruzZ --group --groups --name --real --user --zero --context", "WORD*"),
    Program("whoami"),
    Program(
        "who",
        """
    -abdHlmpqrstTuw --all --boot --count --dead --heading --login --message --mesg --process --runlevel --short
    --time --users --writable
    """,
        "WORD? WORD?",
        check=_nobody_elses_record,
    ),
    Program("w", "-fhiosu --from --no-header --ip-addr --old-style --short --no-current --pids", "WORD?"),
    Program(
        "last",
        """
    -aFiRwx -NUM -n:NUM -s:DATE -t:DATE -p:DATE --hostlast --fulltimes --limit=NUM --nohostname --present=DATE
    --since=DATE --system --until=DATE --fullnames --time-format=WORD
    """,
        "WORD*",
    ),
    Program("journalctl", _JOURNALCTL, "MATCH*"),
    Program("systemctl", _SYSTEMCTL, "UNIT*", check=_looking_verb, answers=(1, 3, 4)),
    Program("ss", _SS, "TEXT*", check=_ports_and_states),
)


def described(programs: Iterable[Program]) -> dict[str, Program]:
    return {program.name: program for program in programs}
