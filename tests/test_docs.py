"""README and docs/ say what the code does: generated parts are current, examples are accepted, and
what they name exists.
"""

import ast
import re
import shlex
import textwrap
import tomllib

import pytest
import tomli_w

from daemon.api.routes import ROUTES
from daemon.app import main as agentd
from daemon.app.setup.models import price_function
from daemon.cli.examples import EXAMPLES, examples_of
from daemon.cli.verbs import VERBS
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.folder import load_routine
from daemon.delivery.targets import KINDS as TARGETS
from daemon.models import DeliveryStatus, Outcome, Reason, Status
from daemon.policy.policy import Policy
from daemon.policy.policy_file import PolicyFile
from tests import docs
from tests.command_parsers import parse_command_line
from tests.test_architecture import LAYERS

README = docs.README.read_text("utf-8")
TEXT_BY_PAGE = {page.name: page.read_text("utf-8") for page in docs.PAGES}
TESTS = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("page", TEXT_BY_PAGE)
def test_generated_parts_of_a_page_are_current(page):
    text = TEXT_BY_PAGE[page]
    assert docs.with_generated_parts(text) == text, "run `python -m tests.docs`"


def test_every_generated_part_stands_in_one_page():
    parts = [match[2] for text in TEXT_BY_PAGE.values() for match in docs.MARK.finditer(text)]
    assert sorted(parts) == sorted(docs.PARTS)


def test_the_home_page_links_every_page_once_in_a_group():
    """The site makes its navigation of these links, see docs/conf.py."""
    groups = TEXT_BY_PAGE["index.md"].partition("\n## ")[2]
    pages = re.findall(r"^- \[[^]]+\]\(([\w-]+\.md)\): ", groups, re.MULTILINE)
    assert sorted(pages) == sorted(TEXT_BY_PAGE.keys() - {"README.md", "index.md"})


def test_the_api_page_describes_every_route_once():
    routes = re.findall(r"^### ([A-Z]+ /\S+)$", TEXT_BY_PAGE["api.md"], re.MULTILINE)
    assert sorted(routes) == sorted(f"{method} {path}" for method, path, _ in ROUTES)


def test_each_field_of_an_answer_of_the_api_has_a_meaning():
    fields = [
        (name, field)
        for name, schema in docs.openapi()["components"]["schemas"].items()
        if not name.startswith("Page_")
        for field in schema["properties"]
    ]
    assert fields
    assert [field for field in fields if not docs.view_meanings().get(field)] == []


def test_the_readme_is_read_in_five_minutes():
    assert len(README.encode()) <= 12_000


def test_the_readme_shows_a_report_and_the_page_before_it_asks_for_a_model():
    first_part, heading, _ = README.partition("\n## A model\n")
    assert heading
    assert "\n## Machine\n" in first_part, "a report, as it arrives"
    (picture,) = re.findall(r"!\[[^\]]+\]\((\S+)\)", first_part)
    assert (docs.ROOT / picture).stat().st_size > 1000


@pytest.mark.parametrize(
    "words",
    [
        "back up",
        "PostgreSQL",
        "GitHub webhook",
        "approve from (my|your) phone",
        "what files (can an agent|an agent can) see",
    ],
)
def test_readme_and_index_name_what_readers_search_for_in_their_words(words: str) -> None:
    for text in (README, (docs.ROOT / "docs/index.md").read_text("utf-8")):
        assert re.search(words, " ".join(text.split()), re.IGNORECASE)


@pytest.mark.parametrize("words", [Status, Outcome, Reason])
def test_every_enumerated_value_is_in_the_page_on_routines(words):
    text = TEXT_BY_PAGE["routines.md"]
    assert [word.value for word in words if not re.search(rf"\b{word.value}\b", text)] == []


def test_every_status_and_kind_of_a_delivery_is_in_the_page_on_delivery():
    text = TEXT_BY_PAGE["delivery.md"]
    words = [*(word.value for word in DeliveryStatus), *TARGETS]
    assert [word for word in words if f"`{word}`" not in text] == []


def test_every_kind_of_provider_is_in_the_page_on_models():
    from daemon.definitions.config.tables import PROVIDER_KINDS

    assert [kind for kind in PROVIDER_KINDS if f"`{kind}`" not in TEXT_BY_PAGE["models.md"]] == []


def test_the_readme_names_models_with_the_price_of_a_report():
    """As `agentctl setup` shows it."""
    prices = re.findall(r"`([\w.-]+)` \$([\d.]+)", README)
    assert len(prices) >= 2
    for model, price in prices:
        kind = "claude" if model.startswith("claude") else "openai"
        price_per_mtok = price_function(kind, kind, "")(model)
        assert price_per_mtok is not None and f"{price_per_mtok:.4f}".rstrip("0") == price, model


def test_every_verb_has_a_one_line_summary():
    assert all(verb.summary and len(verb.summary) < 80 for verb in VERBS.values())


def test_every_verb_has_an_example_for_its_help():
    programs_without_examples = {
        parser.prog for parser in _verbs_of(agentd.build_parser()) if not examples_of(parser.prog)
    }
    programs = {
        f"agentctl {name}" for name, verb in VERBS.items() if not verb.parses_itself
    } | programs_without_examples - {
        "agentd logs",
        "agentd policy",
    }
    assert not programs - EXAMPLES.keys(), "add them to daemon/cli/examples.py"


def _verbs_of(parser):
    return [
        subparser
        for action in parser._actions
        if hasattr(action, "_name_parser_map")
        for subparser in action.choices.values()
    ]


def test_the_example_routine_of_the_readme_loads(tmp_path):
    (example,) = re.findall(r"```toml\n(description.*?)```", README, re.DOTALL)
    path = tmp_path / "example.toml"
    path.write_text(example)
    assert load_routine(path).gate.changed == ("host.disks", "host.errors")


def test_the_shipped_config_shows_every_key_with_its_default():
    """A key stands there as it is, or commented out with its default, in its own table."""
    text = (docs.README.parent / "config.toml").read_text("utf-8")
    tomllib.loads(text)
    # by the first part of a table its lines: those below `[providers.local]` are of `providers`
    top, *parts = re.split(r"^#? *\[(\w+)[\w.]*\]", text, flags=re.MULTILINE)
    text_by_table = {"": top}
    for table, lines in zip(parts[::2], parts[1::2], strict=True):
        text_by_table[table] = text_by_table.get(table, "") + lines
    for key, _, _ in docs.keys(Config):
        table = key.strip("`").partition(".")[0] if "." in key else ""
        name = key.strip("`").rpartition(".")[2]
        assert re.search(rf"(?:^(?:# *)?|[{{,] *){name}\b", text_by_table[table], re.MULTILINE), key


def capabilities():
    """Return (what, file, test) of each line of the page."""
    lines = [line for line in TEXT_BY_PAGE["capabilities.md"].splitlines() if line.startswith("- ")]
    return [(line, *re.search(r": `([\w/]+\.py)::(\w+)`$", line).groups()) for line in lines]


def test_every_capability_names_an_existing_test():
    """Its file is one that pytest collects, and the function stands in it where pytest looks for
    tests.
    """
    lines = capabilities()
    assert len(lines) > 100
    for line, file, name in lines:
        path = docs.README.parent / "tests" / file
        assert path.name.startswith("test_") and path.exists(), line
        test_names = [
            node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, TESTS)
        ]
        assert name.startswith("test_") and name in test_names, line


@pytest.mark.parametrize("page", TEXT_BY_PAGE)
def test_every_path_named_in_a_page_exists(page):
    invented_paths = {
        "daemon/tools/builtin/moon.py",
        "daemon/delivery/channels/pager.py",
        "daemon/chat/matrix.py",
        "tests/tools/builtin/test_moon.py",
        "tests/delivery/channels/test_pager.py",
    }
    for path in re.findall(r"`((?:daemon|tests|systemd)/[\w./-]+)`", TEXT_BY_PAGE[page]):
        assert path in invented_paths or (docs.ROOT / path).exists(), path


# --- docs/

DAEMON = docs.README.parent / "daemon"


def names_of(page):
    """Return the (file, name) pairs that a page mentions as `file.py::Name.method`."""
    return re.findall(r"`([\w/.]+\.py)::([\w.]+)`", (DAEMON.parent / "docs" / page).read_text())


def is_defined(tree, name):
    """Tell whether a module or class defines a dotted name, as a class, function or variable."""
    first, _, member = name.partition(".")
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *TESTS)) and node.name == first:
            return not member or is_defined(node, member)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if first in [target.id for target in targets if isinstance(target, ast.Name)]:
                return True
    return False


@pytest.mark.parametrize("page", ["architecture.md", "extending.md"])
def test_each_name_of_the_code_pages_is_defined_in_its_file(page):
    names = names_of(page)
    assert len(names) > 10
    wrong = [
        f"{file}::{name}"
        for file, name in names
        if not (DAEMON / file).is_file()
        or not is_defined(ast.parse((DAEMON / file).read_text()), name)
    ]
    assert wrong == [], f"named in docs/{page}, and not there (any more)"


@pytest.mark.parametrize("page", ["architecture.md", "extending.md", "security.md"])
def test_each_path_of_the_code_pages_exists(page):
    text = (DAEMON.parent / "docs" / page).read_text()
    paths = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.py))`", text))
    assert paths
    example = {"daemon/tools/builtin/moon.py", "daemon/delivery/channels/pager.py"}
    example |= {
        "tests/tools/builtin/test_moon.py",
        "tests/delivery/channels/test_pager.py",
        "tools/NAME.py",
        "daemon/chat/matrix.py",
        "out/",
    }
    wrong = [
        path
        for path in sorted(paths - example)
        if not (DAEMON / path).exists() and not (DAEMON.parent / path).exists()
    ]
    assert wrong == [], f"named in docs/{page}, and not there (any more)"


def test_the_architecture_page_lists_the_tested_layers():
    rows = re.findall(
        r"^\| \d+ \| (.+?) \|", (DAEMON.parent / "docs/architecture.md").read_text(), re.MULTILINE
    )
    layers = [{part.strip("`/").removesuffix(".py") for part in row.split()} for row in rows]
    assert layers == [set(layer.split()) for layer in reversed(LAYERS)]


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda path: path.name)
def test_each_relative_link_of_the_docs_resolves(page):
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = link.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{page.name}: {link}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
            assert heading in map(anchor_of, headings), f"{page.name}: {link}"


def anchor_of(heading):
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- examples of the pages

# Of each fenced block its language and its text.
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Keys at the top of a file that only this kind of file has.
KEYS_BY_KIND = {
    "routine": {"trigger", "run", "gather", "gate", "check", "dedupe", "deliver"},
    "policy": PolicyFile.model_fields.keys(),
    "config": Config.model_fields.keys(),
}
# Keys at the top of files that other programs read.
FILES_OF_OTHERS = {"mcp_servers", "project", "tool"}
# Users and groups of examples, which this machine need not have: by number any is accepted.
ACCOUNTS = {'"adm"': "1000", '"alice"': "1001", '"grafana"': "1002"}
# Languages of blocks that hold no command lines.
NO_COMMANDS = ("toml", "text", "mermaid", "python", "json", "jsonl", "ini", "yaml")
# What stands for a value of the reader in a command line, where any text will not do.
VALUES = {"ID": "12", "N": "3", "PORT": "8080", "SECONDS": "5", "…": "text"}


def blocks_of(page):
    """Return (language, text) of the fenced blocks of a page, without their indentation."""
    return [
        (language, textwrap.dedent(f"{indent}{text}"))
        for indent, language, text in BLOCK.findall(TEXT_BY_PAGE[page])
    ]


def kind_of(table):
    """Return of which kind of file a table is: routine, policy, config, or of another program."""
    if table.keys() <= FILES_OF_OTHERS:
        return "other"
    kinds = [kind for kind, keys in KEYS_BY_KIND.items() if table.keys() & keys]
    assert kinds, f"of which file are {list(table)}?"
    return kinds[0]


def toml_examples():
    """Yield (table, targets of earlier examples, tools of the page) of each TOML block.

    A page may send reports to a target, and name a tool, that it has shown how to write.
    """
    for page, page_text in TEXT_BY_PAGE.items():
        tables = {}
        tools = re.findall(r"^ *(?:async )?def (\w+)\(", page_text, re.MULTILINE)
        for number, (language, text) in enumerate(blocks_of(page), 1):
            if language != "toml":
                continue
            table = tomllib.loads(text)
            yield pytest.param(table, dict(tables), tools, id=f"{page}-{number}")
            for key in ("targets", "chat"):
                if key in table:
                    tables[key] = tables.get(key, {}) | table[key]


@pytest.mark.parametrize(("table", "tables", "tools"), list(toml_examples()))
def test_each_toml_example_is_accepted_by_the_loader_of_its_file(table, tables, tools, tmp_path):
    path = tmp_path / "example.toml"
    path.touch(0o600)
    kind = kind_of(table)
    if kind == "routine":
        path.write_text(tomli_w.dumps(complete_routine(table)))
        load_routine(path)
    elif kind == "policy":
        path.write_text(tomli_w.dumps({"version": 1} | table))
        Policy.load(path, workspace=tmp_path / "workspace", tools=tools)
    elif kind == "config":
        text = tomli_w.dumps(tables | table)
        for name, number in ACCOUNTS.items():
            text = text.replace(name, number)
        path.write_text(text)
        # a secret file lies beside the config, and has to be its owner's alone
        for name in re.findall(r'_file = "([^"]+)"', text):
            (tmp_path / name).write_text("whsec_c2VjcmV0IG9mIHRoZSBkb2N1bWVudGF0aW9u\n")
            (tmp_path / name).chmod(0o600)
        load_config(path, env={})


def complete_routine(table):
    """Return a routine with what a part of one leaves out: its task, and where reports go."""
    run = {"prompt": "Say how it is.", **table.get("run", {})}
    if run.get("mode") == "script":
        run.pop("prompt")
    return {"deliver": [{"to": "log"}], **table, "run": run}


def command_lines(page):
    """Return (command line, whether it stands within a sentence) of a page.

    In a block with `$ ` only the lines that begin so are commands, all others are output.
    """
    lines = []
    for language, text in blocks_of(page):
        if language in NO_COMMANDS:
            continue
        block = re.sub(r"\\\n\s*", "", text).splitlines()
        if any(line.startswith("$ ") for line in block):
            block = [line[2:] for line in block if line.startswith("$ ")]
        lines += [(line, False) for line in block]
    prose = BLOCK.sub("", TEXT_BY_PAGE[page])
    lines += [(" ".join(code.split()), True) for code in re.findall(r"`([^`]+)`", prose)]
    commands = []
    for line, is_inline in lines:
        without_remark = re.split(r"\s+#\s", line)[0]
        for part in re.split(r"\s(?:\||&&|;)\s|; ", without_remark):
            command = re.sub(r"^(?:sudo )?(?:[\w.~/-]*/)?(?=agentctl\b|agentd\b)", "", part.strip())
            if re.match(r"(?:agentctl|agentd)(?: |$)", command):
                commands.append((command, is_inline))
    return commands


COMMANDS = sorted(
    {
        (page, command, is_inline)
        for page in TEXT_BY_PAGE
        for command, is_inline in command_lines(page)
    }
)


@pytest.mark.parametrize(("page", "command", "is_inline"), COMMANDS)
def test_each_command_line_in_the_pages_is_valid(page, command, is_inline, capsys):
    program, *words = shlex.split(re.sub(r" ?\[[^\]]*\]", "", command))
    words = [VALUES.get(word, word) for word in words]
    while words[:1] == ["--socket"]:
        words = words[2:]
    if not words:
        return
    assert program == "agentd" or words[0] in VERBS, f"agentctl has no verb {words[0]}"
    try:
        parse_command_line(program, words)
    except SystemExit:
        errors = capsys.readouterr().err
        # a sentence may name a verb or an option without what stands behind it
        assert is_inline and re.search("arguments are required|expected one argument", errors), (
            errors
        )
