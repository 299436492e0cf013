"""The programs that a read-only report needs, each with the options that only read, and that end by themselves.

Written from the manuals of GNU coreutils 9, grep 3, findutils 4, diffutils 3, util-linux 2.38, procps 4, iproute2 6,
systemd 252, jq 1.6 and ripgrep 13. Left out on purpose, so that they are refused: what writes a file (sort -o), runs
a program (rg --pre, sort --compress-program), names its files in a file (wc --files0-from), follows links while it
walks (grep -R), waits for ever (tail -f), asks the network (who --lookup), shows environments (ps e), or fills the
memory (sort -S). Programs whose words are a language of their own are in grammars.py and git.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daemon.policy.globs import in_either_case
from daemon.policy.lexer import Unreadable, listed
from daemon.policy.options import Parsed, Program, synopses

# A program and its operands; beneath it, its options. options.py says how both are read.
_TABLE = """
cat         PATH*
            -AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs --show-nonprinting
tac         PATH*
            -br -s:TEXT --before --regex --separator=TEXT
head        PATH*
            -qvz -NUM -c:NUM -n:NUM --bytes=NUM --lines=NUM --quiet --silent --verbose --zero-terminated
tail        PATH*
            -qvz -NUM -c:NUM -n:NUM --bytes=NUM --lines=NUM --quiet --silent --verbose --zero-terminated
wc          PATH*
            -cmlLw --bytes --chars --lines --max-line-length --words --total=WORD
nl          PATH*
            -p -b:TEXT -d:TEXT -f:TEXT -h:TEXT -i:NUM -l:NUM -n:WORD -s:TEXT -v:NUM -w:WIDTH --body-numbering=TEXT
            --section-delimiter=TEXT --footer-numbering=TEXT --header-numbering=TEXT --line-increment=NUM
            --join-blank-lines=NUM --number-format=WORD --no-renumber --number-separator=TEXT --number-width=WIDTH
            --starting-line-number=NUM
rev         PATH*
            -0 --zero
fold        PATH*
            -bs -w:WIDTH --bytes --spaces --width=WIDTH
cut         PATH*
            -nsz -b:WORD -c:WORD -d:TEXT -f:WORD --bytes=WORD --characters=WORD --delimiter=TEXT --fields=WORD
            --complement --only-delimited --output-delimiter=TEXT --zero-terminated
paste       PATH*
            -sz -d:TEXT --delimiters=TEXT --serial --zero-terminated
column      PATH*
            -detxJL -c:WIDTH -E:TEXT -H:WORD -l:NUM -N:TEXT -n:TEXT -o:TEXT -O:TEXT -R:WORD -s:TEXT -T:WORD -W:WORD
            --table --table-name=TEXT --table-columns=TEXT --table-columns-limit=NUM --table-noheadings
            --table-noextreme=WORD --table-header-repeat --table-right=WORD --table-truncate=WORD --table-wrap=WORD
            --table-hide=WORD --table-order=TEXT --json --keep-empty-lines --output-separator=TEXT
            --output-width=WIDTH --separator=TEXT --fillrows
tr          TEXT TEXT?
            -cCdst --complement --delete --squeeze-repeats --truncate-set1
sort        PATH*
            -bdfgiMhnRrVcCmsuz -k:KEY -t:TEXT --ignore-leading-blanks --dictionary-order --ignore-case
            --general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort --random-sort
            --reverse --sort=WORD --version-sort --check[=WORD] --debug --key=KEY --merge --stable --unique
            --field-separator=TEXT --zero-terminated
uniq        PATH?
            -cdDiuz -f:NUM -s:NUM -w:NUM --count --repeated --all-repeated[=WORD] --skip-fields=NUM --group[=WORD]
            --ignore-case --skip-chars=NUM --unique --zero-terminated --check-chars=NUM
comm        PATH PATH
            -123z --check-order --nocheck-order --output-delimiter=TEXT --total --zero-terminated
cmp         PATH PATH NUM? NUM?
            -bls -i:WORD -n:NUM --print-bytes --verbose --ignore-initial=WORD --bytes=NUM --quiet --silent
diff        by its options
            -aBbcdEeiNnpqrstTuwyZ -U:NUM -C:NUM -I:TEXT -W:WIDTH -x:TEXT -F:TEXT -L:TEXT -NUM --normal --brief
            --report-identical-files --context[=NUM] --unified[=NUM] --ed --rcs --side-by-side --width=WIDTH
            --left-column --suppress-common-lines --show-c-function --show-function-line=TEXT --label=TEXT
            --expand-tabs --initial-tab --tabsize=WIDTH --suppress-blank-empty --recursive --no-dereference --new-file
            --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case --exclude=TEXT --ignore-case
            --ignore-tab-expansion --ignore-trailing-space --ignore-space-change --ignore-all-space
            --ignore-blank-lines --ignore-matching-lines=TEXT --text --strip-trailing-cr --minimal
            --horizon-lines=NUM --speed-large-files --color[=WORD]
grep        by its options
            -EFGPivwxcLlqsobHhnTUzZarI -NUM -e:TEXT -f:PATH -m:NUM -A:NUM -B:NUM -C:NUM --extended-regexp
            --fixed-strings --basic-regexp --perl-regexp --regexp=TEXT --file=PATH --ignore-case --no-ignore-case
            --invert-match --word-regexp --line-regexp --count --color[=WORD] --colour[=WORD] --files-without-match
            --files-with-matches --max-count=NUM --only-matching --quiet --silent --no-messages --byte-offset
            --with-filename --no-filename --label=TEXT --line-number --initial-tab --null --null-data
            --after-context=NUM --before-context=NUM --context=NUM --text --binary-files=WORD --exclude=TEXT
            --include=NAMES --exclude-dir=TEXT --recursive --line-buffered --group-separator=TEXT --no-group-separator
rg          by its options
            -abcFHhiIlnNopPqsSUvwx0 -A:NUM -B:NUM -C:NUM -e:TEXT -E:WORD -f:PATH -g:NAMES -j:NUM -m:NUM -M:NUM -r:TEXT
            -t:WORD -T:WORD -d:NUM --after-context=NUM --before-context=NUM --context=NUM --regexp=TEXT --file=PATH
            --glob=NAMES --iglob=NAMES --max-count=NUM --max-columns=NUM --replace=TEXT --type=WORD --type-not=WORD
            --max-depth=NUM --case-sensitive --ignore-case --smart-case --color=WORD --colors=TEXT --column
            --no-column --count --count-matches --files --files-with-matches --files-without-match --fixed-strings
            --heading --no-heading --invert-match --json --line-number --no-line-number --line-regexp --word-regexp
            --multiline --multiline-dotall --no-filename --with-filename --no-messages --null --only-matching
            --passthru --pcre2 --pretty --quiet --sort=WORD --sortr=WORD --stats --text --trim --type-list --vimgrep
            --threads=NUM --max-filesize=WORD --no-config --one-file-system --byte-offset --crlf --encoding=WORD
            --no-unicode
jq          TEXT PATH*
            -cnrjaSCMeRs --compact-output --null-input --raw-output --join-output --ascii-output --sort-keys
            --color-output --monochrome-output --exit-status --raw-input --slurp --tab --indent=NUM --arg=TEXT+TEXT
            --argjson=TEXT+TEXT --slurpfile=TEXT+PATH --rawfile=TEXT+PATH --seq --stream --unbuffered
md5sum      PATH*
            -btz --binary --text --tag --zero
sha1sum     PATH*
            -btz --binary --text --tag --zero
sha256sum   PATH*
            -btz --binary --text --tag --zero
sha512sum   PATH*
            -btz --binary --text --tag --zero

ls          PATH*=.
            -1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ -I:TEXT -T:WIDTH -w:WIDTH --all --almost-all --author --escape
            --block-size=WORD --ignore-backups --color[=WORD] --directory --classify[=WORD] --file-type --format=WORD
            --full-time --group-directories-first --no-group --human-readable --si --hide=TEXT --hyperlink[=WORD]
            --indicator-style=WORD --inode --ignore=TEXT --kibibytes --literal --numeric-uid-gid --hide-control-chars
            --show-control-chars --quote-name --quoting-style=WORD --reverse --recursive --size --sort=WORD
            --time=WORD --time-style=FORMAT --tabsize=WIDTH --width=WIDTH --context --zero
stat        PATH+
            -Lft -c:FORMAT --dereference --file-system --cached=WORD --format=FORMAT --printf=FORMAT --terse
file        PATH+
            -bEhikLnNr0 -F:TEXT --brief --no-dereference --mime --mime-type --mime-encoding --keep-going --dereference
            --no-buffer --no-pad --raw --separator=TEXT --print0 --extension --apple
du          PATH*=.
            -0abchklmPsSx -B:WORD -d:NUM -t:WORD --null --all --apparent-size --block-size=WORD --bytes --total
            --max-depth=NUM --human-readable --inodes --no-dereference --separate-dirs --si --summarize
            --threshold=WORD --time[=WORD] --time-style=FORMAT --exclude=TEXT --one-file-system
df          MOUNT*
            -ahHikmlPTv -B:WORD -t:WORD -x:WORD --all --block-size=WORD --human-readable --si --inodes --local
            --no-sync --output[=WORD] --portability --total --type=WORD --print-type --exclude-type=WORD
realpath    PATH+
            -eLmPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet --strip
            --no-symlinks --zero --relative-to=PATH --relative-base=PATH
readlink    PATH+
            -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent
            --verbose --zero
basename    TEXT+
            -az -s:TEXT --multiple --suffix=TEXT --zero
dirname     TEXT+
            -z --zero
which       TEXT+
            -a
pwd
            -LP --logical --physical

printf      TEXT ANY*
seq         TEXT TEXT? TEXT?
            -w -f:FORMAT -s:TEXT --format=FORMAT --separator=TEXT --equal-width
true
false

date        FORMAT?
            -uR -I?WORD -d:DATE -r:PATH --date=DATE --iso-8601[=WORD] --rfc-3339=WORD --rfc-email --utc --universal
            --reference=PATH --debug --resolution
uname
            -asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor
            --hardware-platform --operating-system
uptime
            -ps --pretty --since
hostname
nproc
            --all --ignore=NUM
free
            -bkmghtwlv --bytes --kibi --mebi --gibi --tebi --pebi --kilo --mega --giga --tera --peta --human --si
            --lohi --total --wide --committed
vmstat      NUM? NUM?
            -adDfmnstwy -p:WORD -S:WORD --active --disk --disk-sum --forks --slabs --one-header --stats --timestamp
            --wide --no-first --unit=WORD --partition=WORD
lscpu
            -abcBJxy -e?TEXT -p?TEXT -C?TEXT --all --online --bytes --caches[=TEXT] --offline --extended[=TEXT] --json
            --parse[=TEXT] --hex --physical --output-all
lsblk       DEVICE*
            -abdDfilJmnOpPrsStTzA -e:WORD -E:WORD -I:WORD -M -o:WORD -x:WORD -w:WIDTH --all --bytes --nodeps
            --discard --dedup=WORD --exclude=WORD --fs --include=WORD --ascii --json --list --merge --perms
            --noheadings --output=WORD --output-all --paths --pairs --raw --inverse --scsi --sort=WORD --tree[=WORD]
            --topology --zoned --noempty --width=WIDTH
dmesg
            -deHkPprtTuxJS -L?WORD -f:WORD -l:WORD -s:NUM --color[=WORD] --ctime --decode --facility=WORD --force-prefix
            --human --json --kernel --level=WORD --nopager --notime --noescape --raw --reltime --show-delta
            --since=DATE --syslog --time-format=WORD --until=DATE --userspace --buffer-size=NUM
id          WORD*
            -aGgnruzZ --group --groups --name --real --user --zero --context
whoami
who         WORD? WORD?
            -abdHlmpqrstTuw --all --boot --count --dead --heading --login --message --mesg --process --runlevel
            --short --time --users --writable
w           WORD?
            -fhiosu --from --no-header --ip-addr --old-style --short --no-current
last        WORD*
            -aFiRwx -NUM -n:NUM -s:DATE -t:DATE -p:DATE --hostlast --fulltimes --ip --limit=NUM --nohostname
            --present=DATE --since=DATE --system --until=DATE --fullnames --time-format=WORD
ss          TEXT*
            -aHlnoemipstuxwdO046ZTSMzb -f:WORD -A:WORD --all --no-header --oneline --numeric --listening --options
            --extended --memory --processes --threads --info --summary --tos --cgroup --ipv4 --ipv6 --packet --tcp
            --sctp --udp --dccp --raw --unix --tipc --vsock --xdp --mptcp --bpf --context --contexts --family=WORD
            --query=WORD --socket=WORD --tipcinfo --inet-sockopt
journalctl  MATCH*
            -krxaqeml -b?WORD -n?COUNT -N -NUM -S:DATE -U:DATE -u:UNIT -t:TEXT -p:WORD -g:TEXT -o:WORD -c:TEXT -F:WORD
            --system --user --merge --since=DATE --until=DATE --cursor=TEXT --after-cursor=TEXT --boot[=WORD]
            --unit=UNIT --user-unit=UNIT --identifier=TEXT --priority=WORD --facility=WORD --grep=TEXT
            --case-sensitive[=WORD] --dmesg --output=WORD --output-fields=WORD --lines[=COUNT] --reverse --show-cursor
            --utc --catalog --no-hostname --no-full --full --all --quiet --no-pager --pager-end --fields --field=WORD
            --list-boots --disk-usage --header --no-tail --verify
systemctl   UNIT*
            -alqr -t:WORD -n:NUM -o:WORD --system --user --type=WORD --state=WORD --failed --all --full --recursive
            --reverse --with-dependencies --show-types --quiet --no-legend --legend=WORD --no-pager --plain
            --lines=NUM --output=WORD --after --before
"""


def table() -> Iterator[Program]:
    """Yield the programs of the table, each with what else is known of it."""
    for name, operands, options in synopses(_TABLE):
        yield Program(**{"name": name, "operands": operands, "options": options, **_MORE.get(name, {})})


# --- operands that depend on options -------------------------------------------------------------------


def _grep_operands(parsed: Parsed) -> str:
    paths = "TREE*=." if parsed.has("-r", "--recursive") else "PATH*"
    return paths if parsed.has("-e", "--regexp", "-f", "--file") else f"TEXT {paths}"


def _rg_operands(parsed: Parsed) -> str:
    pattern = "" if parsed.has("--files", "--type-list", "-e", "--regexp", "-f", "--file") else "TEXT "
    return pattern + "TREE*=."


def _diff_operands(parsed: Parsed) -> str:
    # of two folders it compares the files in them, of a file and a folder that file in the folder: not only with -r
    return "TREE TREE" if parsed.has("-r", "--recursive") else "FILE FILE"


def _diff_without_links(parsed: Parsed) -> Sequence[str]:
    return ("--no-dereference",) if parsed.has("-r", "--recursive") else ()


# --- what must not be read within a tree ---------------------------------------------------------------


def _skip_in_grep(pattern: str, folder: bool) -> Sequence[str]:
    name = in_either_case(pattern)
    return (f"--exclude-dir={name}",) if folder else (f"--exclude={name}", f"--exclude-dir={name}")


def _skip_in_rg(pattern: str, folder: bool) -> Sequence[str]:
    pattern = re.sub(r"[{}]", r"[\g<0>]", pattern)  # {a,b} would be one or the other
    return (f"--iglob=!**/{pattern}/**" if folder else f"--iglob=!**/{pattern}",)


def _skip_in_diff(pattern: str, folder: bool) -> Sequence[str]:
    return (f"--exclude={in_either_case(pattern)}",)


# --- what no table can say -----------------------------------------------------------------------------


def _only_a_format(parsed: Parsed) -> None:
    if parsed.operands and not parsed.operands[0].text.startswith("+"):
        raise Unreadable("date with a bare operand sets the clock", "write date +FORMAT, or date -d TEXT")


_WIDE = re.compile(r"%[^A-Za-z%]*(?:\d{4,}|\*)")


def _narrow_fields(parsed: Parsed) -> None:
    if parsed.operands and _WIDE.search(parsed.operands[0].text):
        raise Unreadable("printf with so wide a field would flood the output", "give a width of at most 999")


_SEQ_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d{1,3})?")
_LONGEST_SEQUENCE = 100_000


def _short_sequence(parsed: Parsed) -> None:
    instead = f"seq takes plain numbers of at most six digits, and gives at most {_LONGEST_SEQUENCE:,} of them"
    numbers = [float(word.text) for word in parsed.operands if _SEQ_NUMBER.fullmatch(word.text)]
    if len(numbers) < len(parsed.operands):
        raise Unreadable("seq with such numbers might not end", instead)
    first = numbers[0] if len(numbers) > 1 else 1.0
    step = numbers[1] if len(numbers) > 2 else 1.0
    if not step or abs(numbers[-1] - first) / abs(step) > _LONGEST_SEQUENCE:
        raise Unreadable("seq would not end soon", instead)


def _few_repetitions(parsed: Parsed) -> None:
    if len(parsed.operands) == 1:
        raise Unreadable("vmstat DELAY goes on for ever", "write vmstat, or vmstat DELAY COUNT")
    if any(not re.fullmatch(r"[1-9]\d?", word.text) for word in parsed.operands):
        raise Unreadable("vmstat would take too long", "give a delay and a count below 100")


def _no_obsolete_key(parsed: Parsed) -> None:
    if any(re.fullmatch(r"\+\d.*", word.text) for word in parsed.operands):
        raise Unreadable("sort +N is the obsolete form of a key", "write sort -k N")


# Reads modules or the environment, or might never end; as a field (.env) a word is just a name.
_JQ_WORDS = re.compile(
    r"(?<![.\w$])(?:import|include|modulemeta|env|def|repeat|while|until|infinite|combinations|pow|exp10|exp2|exp)\b"
    r"|\$ENV|\brecurse\s*\(|\*\s*(?:\d{4,}|\d+[eE])|\*[^*]*\*\s*\d{3,}"
)
# range(5), range(0; length), range(1; .n): how often it runs is known, or depends on the data.
_JQ_END = r"\s*(?:-?\d{1,6}|(?:\.[\w.\[\]]*\s*\|\s*)?length|\.[\w.]+)\s*"
_JQ_RANGE = re.compile(rf"\brange\s*\({_JQ_END}(?:;{_JQ_END}){{0,2}}\)")


_LONGEST_FILTER = 1000


def _plain_filter(parsed: Parsed) -> None:
    for word in parsed.operands[:1]:
        if len(word.text) > _LONGEST_FILTER:
            raise Unreadable("jq with so long a filter is not read", "write a shorter one")
        if match := _JQ_WORDS.search(word.text):
            problem = f"jq {match[0]} is not allowed: it could read elsewhere, never end, or fill the memory"
            raise Unreadable(problem, "use plain filters")
        if len(re.findall(r"\brange\b", word.text)) > min(1, len(_JQ_RANGE.findall(word.text))):
            raise Unreadable("jq range is not allowed like this: it might never end", "write one range(N), or map")


_WHO_AM_I = frozenset([(), ("am", "i"), ("am", "I")])


def _nobody_elses_record(parsed: Parsed) -> None:
    if tuple(word.text for word in parsed.operands) not in _WHO_AM_I:
        raise Unreadable("who FILE reads that file as a record of logins", "write who, or who am i")


_SS_WORD = re.compile(
    r"state|exclude|all|connected|synchronized|bucket|big|established|syn-sent|syn-recv|fin-wait-[12]|time-wait|closed"
    r"|close-wait|last-ack|listening|listen|closing|sport|dport|src|dst|and|or|not|[=!<>]=?|eq|ne|lt|le|gt|ge|[()]"
    r"|:\d{1,5}|\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?"
)


def _ports_and_states(parsed: Parsed) -> None:
    for text in (each for word in parsed.operands for each in word.text.split()):
        if not _SS_WORD.fullmatch(text):
            raise Unreadable(f"ss {text} might look a name up", "filter by state and by port number, like :22")


_VERBS = listed("""
    status is-active is-enabled is-failed is-system-running get-default list-units list-unit-files list-timers
    list-sockets list-jobs list-automounts list-paths list-dependencies
    """)


def _looking_verb(parsed: Parsed) -> None:
    for word in parsed.operands[:1]:
        if word.text not in _VERBS:
            problem = f"systemctl {word.text} is not known here to change nothing"
            raise Unreadable(problem, f"systemctl takes {', '.join(sorted(_VERBS))}")


# What else is known of a program; the fields are those of options.Program.
_MORE: Mapping[str, Mapping[str, Any]] = {
    "tr": {"stdin": True},
    "sort": {"check": _no_obsolete_key, "answers": (1,)},
    "cmp": {"answers": (1,)},
    "diff": {"operands": _diff_operands, "add": _diff_without_links, "answers": (1,), "excludes": _skip_in_diff},
    "grep": {"operands": _grep_operands, "answers": (1,), "excludes": _skip_in_grep},
    "rg": {"operands": _rg_operands, "answers": (1,), "excludes": _skip_in_rg},
    "jq": {"check": _plain_filter, "answers": (1, 4), "without_input": ("-n", "--null-input")},
    "which": {"answers": (1,)},
    "printf": {"check": _narrow_fields},
    "seq": {"check": _short_sequence, "negative": True},
    "false": {"answers": (1,)},
    "date": {"check": _only_a_format},
    "vmstat": {"check": _few_repetitions},
    "who": {"check": _nobody_elses_record},
    "ss": {"check": _ports_and_states},
    "systemctl": {"check": _looking_verb, "answers": (1, 3, 4)},
}
