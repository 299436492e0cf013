"""The steps of `agentd setup`: a model, a target of reports, a first routine.

Each step asks all it needs, tries what it was told, and only then writes. So whoever leaves a
question by Ctrl-C leaves the config as it was when the step began.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from daemon.app.commands.init import describe, init
from daemon.app.commands.target import AddressParts, send_test_message
from daemon.app.setup import FIRST_START_VARIABLE
from daemon.app.setup.config_file import (
    check_secret,
    check_table,
    lock_config,
    with_table,
    write_config,
    write_secret,
)
from daemon.app.setup.models import (
    REPORT_USAGE,
    PricedModel,
    call_price,
    first_line,
    format_dollars,
    list_models,
    price_function,
    propose,
    try_model,
)
from daemon.app.setup.provider_choice import (
    NoModelWantedError,
    UnusableAnswerError,
    choose_provider,
)
from daemon.app.setup.questions import Interrupted, MissingAnswerError, Questions, say
from daemon.app.setup.running_daemon import take_up
from daemon.app.setup.targets import TARGET_KINDS, TargetKind, check_answer, make_address
from daemon.app.setup.vendors import VENDORS, Vendor
from daemon.cli.render import sanitize
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import BUILT_IN_TARGETS, TargetConfig
from daemon.definitions.paths import OVERLAY
from daemon.errors import ConfigError, DeliveryFailed, ProviderError, Refused
from daemon.providers.base import is_listed
from daemon.telemetry.log import configure
from daemon.telemetry.redaction import Secrets

_NOT_SUCCEEDED, _USAGE_ERROR = 1, 2
_INTERRUPTED = 130
# Of a long list of models so many are shown, and so many in one sentence.
_MAX_SHOWN = 40
_MAX_NAMES_IN_ERROR = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigEditor:
    """The config.toml and the secrets beside it, and the daemon that uses them."""

    file: Path
    """config.toml; it need not be there yet."""
    state: Path
    sockets: Sequence[Path]
    """Where a daemon may listen."""
    is_socket_named: bool
    """Whether a person named the one socket."""
    env: Mapping[str, str]

    def load(self) -> Config:
        """Return the config; that of a new installation if there is no file."""
        return load_config(self.file) if self.file.exists() else Config().at(self.file)

    def prepare(self) -> None:
        """Write the shipped files where there is no config yet."""
        if not self.file.exists():
            for path in init(self.file.parent):
                say(f"wrote {path}: {describe(path)}")

    def check_table(self, kind: str, name: str, *, replace: bool) -> None:
        """Raise Refused if the config has a table of this name already and not `replace`."""
        has_file = self.file.exists()
        check_table(self.file, kind, name, replace=replace, has_file=has_file)

    def read_table(self, kind: str, name: str) -> dict[str, Any]:
        """Return a table of the config as it is written there."""
        table: dict[str, Any] = tomllib.loads(self.file.read_text("utf-8-sig"))[kind][name]
        return table

    def write_table(
        self,
        kind: str,
        table_name: str,
        table: Mapping[str, Any],
        secrets: Mapping[str, str],
        *,
        default: bool = False,
        replace: bool = False,
    ) -> None:
        """Write a table of config.toml and the `secrets` that it names, by file.

        Raises Refused, and changes nothing, where that cannot be done.
        """
        for name, secret in secrets.items():
            check_secret(self.file.parent / name, secret, replace=replace)
        self.prepare()
        old_secrets: dict[Path, str | None] = {}
        try:
            with lock_config(self.file):
                text = with_table(
                    self.file.read_text("utf-8-sig"),
                    kind,
                    table_name,
                    table,
                    default=default,
                    replace=replace,
                )
                for name, secret in secrets.items():
                    path = self.file.parent / name
                    old_secrets[path] = path.read_text("utf-8") if path.exists() else None
                    write_secret(path, secret)
                write_config(self.file, text)
        except (OSError, ValueError, ConfigError) as error:
            for path, old_secret in old_secrets.items():
                if old_secret is None:
                    path.unlink(missing_ok=True)
                else:
                    write_secret(path, old_secret.strip())
            raise Refused(f"{self.file} was not changed: {error}") from None

    def tell_daemon(self) -> None:
        """Have a daemon that runs here take up what was written, and say what came of it."""
        if not self.env.get(FIRST_START_VARIABLE):  # it is about to start, and reads it then
            say(sanitize(take_up(self.file, self.sockets, is_trusted=self.is_socket_named)))


def main(options: argparse.Namespace, *, file: Path, state: Path, sockets: Sequence[Path]) -> int:
    """Ask, try and write; return the exit code."""
    # its answers are for a person, or JSON: what a provider logs does not stand between them
    configure(level="error", console=False, file=None, secrets=Secrets())
    questions = Questions(assume_yes=options.yes)
    editor = ConfigEditor(
        file=file,
        state=state,
        sockets=[options.socket] if options.socket else sockets,
        is_socket_named=bool(options.socket),
        env=os.environ,
    )
    steps_done: list[str] = []
    results: dict[str, Any] = {"config": os.fspath(file)}
    try:
        with redirect_stdout(sys.stderr) if options.json else nullcontext():
            try:
                _run_steps(options, questions, editor, steps_done, results)
            finally:
                if steps_done:
                    editor.tell_daemon()
    except NoModelWantedError:
        say("No model was set up: reports are the gathered facts, laid out.")
        say("`agentctl setup` sets one up at any time.")
    except Interrupted:
        say(f"\nstopped: {_describe_progress(steps_done)}")
        return _INTERRUPTED
    except (MissingAnswerError, UnusableAnswerError) as error:
        progress = _describe_progress(steps_done)
        sys.stderr.write(f"{options.program} setup: {sanitize(str(error))}; {progress}\n")
        return _USAGE_ERROR
    except (ProviderError, DeliveryFailed) as error:
        progress = _describe_progress(steps_done)
        sys.stderr.write(f"{options.program} setup: {sanitize(str(error))}; {progress}\n")
        return _NOT_SUCCEEDED
    if options.json:
        sys.stdout.write(f"{json.dumps(results, ensure_ascii=False)}\n")
    return 0


def _describe_progress(steps_done: Sequence[str]) -> str:
    """Return in words that the step under way has changed nothing."""
    if not steps_done:
        return "nothing was changed"
    return f"{' and '.join(steps_done)} stays as it was written before, nothing more was changed"


def _run_steps(
    options: argparse.Namespace,
    questions: Questions,
    editor: ConfigEditor,
    steps_done: list[str],
    results: dict[str, Any],
) -> None:
    """Go through the steps that the flags ask for, all of them if none is named and a person can be
    asked; what each step has written is added to `steps_done` in words, and to `written` as data.
    """
    model_flags = (options.provider, options.model, options.base_url, options.key_file)
    wants_target, wants_routine = options.target is not None, options.routine is not None
    wants_model = any(model_flags) or options.key_stdin or not (wants_target or wants_routine)
    if wants_model:
        results["provider"] = set_up_model(options, questions, editor)
        steps_done.append("the model")
        if not wants_target:
            wants_target = questions.confirm("Shall reports reach you by mail, chat or phone, too?")
    target = ""
    if wants_target:
        results["target"] = set_up_target(options, questions, editor)
        target = results["target"]["name"]
        steps_done.append("the target")
    if wants_model and not wants_routine:
        wants_routine = questions.confirm("Write a first routine of your own now?")
    if wants_routine:
        results["routine"] = write_routine(options, questions, editor, target=target)
        steps_done.append("the routine")


def set_up_model(
    options: argparse.Namespace, questions: Questions, editor: ConfigEditor
) -> dict[str, Any]:
    """Have a model write the reports: find, choose and try it, and write it into the config.

    Returns its name and table, and what the test call brought and cost (`usd` is None if the price
    is not known).
    """
    config = editor.load()
    choice = choose_provider(options, questions, config, editor.env)
    vendor = choice.vendor
    base_url = options.base_url or vendor.base_url
    replace = options.replace
    if choice.is_configured and questions.is_interactive:
        replace = True  # only the model of its table may become another one
    if vendor.name in config.providers and not replace:
        question = f"{editor.file} has a [providers.{vendor.name}] already. Replace it?"
        if questions.is_interactive:
            replace = questions.confirm(question)
        editor.check_table("providers", vendor.name, replace=replace)
    if choice.is_configured:
        secret = config.secret(vendor.name, editor.env)
        key = secret.get_secret_value() if secret else None
    else:
        key = _read_key(options, questions, vendor, editor.env, may_have_key=choice.may_have_key)

    say(f"Asking {vendor.title} for its models …")
    models = list_models(vendor.kind, vendor.name, base_url, key)
    names = sorted({model.name for model in models})
    proposals = propose(models, price_function(vendor.kind, vendor.name, base_url))
    if not names and vendor.name == "ollama" and not options.model:
        raise Refused("Ollama has no models yet; get one, and try again: ollama pull qwen3:8b")
    model = _choose_model(options, questions, vendor, names, proposals, has_key=bool(key))

    say(f"Asking {model} one question …")
    response = try_model(vendor.kind, vendor.name, base_url, key, model)
    answer = first_line(response.content) or f"(no text; it ended by {response.finish_reason})"
    cost = call_price(vendor.kind, vendor.name, base_url, model, response.usage)
    cost_text = "" if cost is None else f", {format_dollars(cost)}"
    say(f"It says: {sanitize(answer)}  ({response.usage.total} tokens{cost_text})")

    table: dict[str, Any] = {"kind": vendor.kind, "model": model}
    secrets: dict[str, str] = {}
    if choice.is_configured:
        table = {**editor.read_table("providers", vendor.name), "model": model}
        if any(table.get("price", {}).values()) and model != config.providers[vendor.name].model:
            say(
                f"The price in [providers.{vendor.name}] stays: look whether it is that of {model}."
            )
    elif base_url:
        table["base_url"] = base_url
    if not choice.is_configured and vendor.name in VENDORS and vendor.is_local:
        # a cap in dollars demands that the price of each model is known
        table["price"] = {"input": 0, "output": 0}
    if key and not choice.is_configured:
        table["api_key_file"] = f"{vendor.name}.key"
        secrets[table["api_key_file"]] = key
    is_default = not options.keep_default
    editor.write_table(
        "providers", vendor.name, table, secrets, default=is_default, replace=replace
    )
    provider = vendor.name if is_default else config.provider
    stays = "" if is_default else ", as before"
    say(f'{editor.file} has [providers.{vendor.name}] and provider = "{provider}"{stays}.')
    for name in secrets:
        say(f"The key is in {editor.file.parent / name} (mode 0600), and nowhere else.")
    in_force = load_config(editor.file, editor.state / OVERLAY).provider
    if in_force != provider:
        overlay = editor.state / OVERLAY
        say(f'An agent has set provider = "{in_force}" in {overlay}, which goes before the config.')
    test = {"answer": answer, "tokens": response.usage.total, "usd": cost}
    return {"name": vendor.name, **table, "test": test}


def set_up_target(
    options: argparse.Namespace, questions: Questions, editor: ConfigEditor
) -> dict[str, Any]:
    """Have reports reach a person: ask for the address, send a test message, write the target.

    Returns its name and table, and the receipt of the test message, None without one.
    """
    config = editor.load()
    choices = [(name, kind.title) for name, kind in TARGET_KINDS.items()]
    choice = options.target or questions.choose(
        "Where to? A number or a name; Enter for 1:", choices, flag="--target"
    )
    target_kind = TARGET_KINDS[choice]
    name = options.target_name or target_kind.name
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", name) or name in BUILT_IN_TARGETS:
        raise UnusableAnswerError(f"--target-name {name!r} is no name: use a-z, 0-9, - and _")
    replace = options.replace
    if name in config.targets and not replace:
        if questions.is_interactive:
            replace = questions.confirm(f"{editor.file} has a [targets.{name}]. Replace it?")
        editor.check_table("targets", name, replace=replace)
    to = options.to or questions.ask(target_kind.to, flag="--to", example=target_kind.to_example)
    answers = {"to": to}
    if target_kind.needs_server:
        default = target_kind.server
        question = (
            f"The mail server, HOST or HOST:PORT{f'; Enter for {default}' if default else ''}:"
        )
        server = options.smtp or default if questions.assume_yes else options.smtp
        answers["server"] = server or questions.ask(
            question, flag="--smtp", default=default, example=default or "mail.example.org:587"
        )
    if target_kind.needs_user:
        question = "The account, usually a mail address:"
        answers["user"] = options.user or questions.ask(
            question, flag="--user", example="ada@example.org"
        )
    if target_kind.hidden_question:
        if options.secret_file or options.secret_stdin:
            secret = read_secret_option(options.secret_file, "--secret-file", "--secret-stdin")
        else:
            flag = "--secret-file FILE or --secret-stdin"
            secret = questions.ask_secret(target_kind.hidden_question, flag=flag)
        answers["secret"] = secret
    if problem := check_answer(choice, **answers):
        raise UnusableAnswerError(problem)
    url = make_address(choice, hostname=os.uname().nodename, **answers)

    receipt = None
    if not options.no_test:
        say("Sending a test message …")
        table = TargetConfig.model_validate({"kind": target_kind.kind, "url": url})
        targets = {**config.targets, name: table}
        result = send_test_message(
            config.model_copy(update={"targets": targets}),
            name,
            state=editor.state,
            env=editor.env,
            address=_address_parts(answers, target_kind, with_flags=not questions.is_interactive),
        )
        if not result.error:
            say(result.text)
            receipt = result.text
        elif questions.is_interactive:
            say(sanitize(result.text))
            if not questions.confirm("Write the target all the same?"):
                raise Interrupted
        else:
            reason = " ".join(f"{result.error}; {result.advice}".split())
            raise DeliveryFailed(
                f"{name} ({result.kind}) took no test message: {reason}; --no-test writes it "
                "untested"
            )
    file = f"{name}.url"
    editor.write_table(
        "targets",
        name,
        {"kind": target_kind.kind, "url_file": file},
        {file: url},
        replace=replace,
    )
    say(f"{editor.file} has [targets.{name}]; its address is in {file} beside it (mode 0600).")
    say(f'A routine sends its reports there by [[deliver]] with to = "{name}".')
    return {"name": name, "kind": target_kind.kind, "url_file": file, "test": receipt}


def _address_parts(
    answers: Mapping[str, str], target_kind: TargetKind, *, with_flags: bool
) -> AddressParts:
    """Return what a person has said of a target's address, as flags or as answers."""

    def name_part(flag: str, words: str) -> str:
        return flag if with_flags else words

    if target_kind.kind != "mail":  # whose address may be a secret, and is not shown
        to = name_part("--to", "the address that you gave")
        secret = " and the token" if target_kind.hidden_question else ""
        return replace(AddressParts.written_in(""), whole=to + secret, server=to, host=to)
    to = name_part(f"--to {answers['to']}", answers["to"])
    address = answers.get("server") or target_kind.server
    server = name_part(f"--smtp {address}", f"the mail server, {address}")
    user = answers.get("user", "")
    account = name_part(f"--user {user}", f"the account, {user},")
    return AddressParts(
        whole=server,
        server=server,
        host=server,
        account=f"{account} and its password",
        mailboxes=f"{to}, and {account}" if user else to,
        encryption=f"{server}: port 465 begins encrypted, any other has to offer STARTTLS; a "
        "server that has neither, and wants no password, is of the kind relay",
    )


def write_routine(
    options: argparse.Namespace, questions: Questions, editor: ConfigEditor, *, target: str
) -> dict[str, Any]:
    """Write a first routine as `agentctl new` does, with reports to a file and to `target`.

    Returns its name and schedule.
    """
    name = options.routine or questions.ask(
        "Its name (a-z, 0-9 and -); Enter for morning:", flag="--routine", default="morning"
    )
    schedule = options.when or questions.ask(
        'When does it run? Enter for "weekdays at 9am":', flag="--when", default="weekdays at 9am"
    )
    prompt = options.prompt or questions.ask(
        "What shall it do, in a sentence?",
        flag="--prompt",
        example='"Say what is wrong with this machine."',
    )
    editor.prepare()
    main_module = f"daemon.app.main{'_for_agentctl' if options.program == 'agentctl' else ''}"
    command = [sys.executable, "-m", main_module, "new", name, schedule]
    command += ["--prompt", prompt, "--config", os.fspath(editor.file)]
    if target:
        command += ["--to", f"file,{target}"]
    sys.stdout.flush()
    if subprocess.run(command, check=False, stdout=sys.stdout.fileno()).returncode:
        raise UnusableAnswerError("`agentctl new` wrote no routine")
    return {"name": name, "when": schedule}


def _read_key(
    options: argparse.Namespace,
    questions: Questions,
    vendor: Vendor,
    env: Mapping[str, str],
    *,
    may_have_key: bool,
) -> str | None:
    """Return the key of a vendor: of a flag, of the environment, or typed unseen; None for none."""
    flags = "--key-file FILE or --key-stdin"
    if options.key_file or options.key_stdin:
        key = read_secret_option(options.key_file, "--key-file", "--key-stdin")
    elif not vendor.key_variable:
        question = "Its key, if it wants one (it stays unseen); Enter for none:"
        key = questions.ask_secret(question, flag=flags, optional=True) if may_have_key else ""
        if not key:
            return None
    elif key := env.get(vendor.key_variable, "").strip():
        say(f"The key is that of ${vendor.key_variable}.")
    else:
        key = questions.ask_secret(
            f"The key of {vendor.title} (it stays unseen):",
            flag=f"{flags} (or ${vendor.key_variable} in the environment)",
        )
    if not re.fullmatch(r"[!-~]+", key):
        raise UnusableAnswerError(
            "the key holds a character that no key has (a space, a line break?)"
        )
    return key


def read_secret_option(file: Path | None, file_flag: str, stdin_flag: str) -> str:
    """Return the one line of a file, or of the standard input if there is no file."""
    try:
        text = file.expanduser().read_text("utf-8-sig") if file else sys.stdin.read(1_000_000)
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UnusableAnswerError(f"{file_flag} {file}: {problem}") from None
    except KeyboardInterrupt:
        raise Interrupted from None
    flag = f"{file_flag} {file}" if file else stdin_flag
    if not text.strip() or "\n" in text.strip():
        raise UnusableAnswerError(
            f"{flag} gives {'nothing' if not text.strip() else 'several lines'}"
        )
    return text.strip()


def _choose_model(
    options: argparse.Namespace,
    questions: Questions,
    vendor: Vendor,
    names: list[str],
    proposals: list[PricedModel],
    *,
    has_key: bool,
) -> str:
    """Return a model that the vendor lists: of a flag, of the proposals, or another one."""
    if options.model:
        if problem := _explain_unlisted(options.model, vendor, names, has_key=has_key):
            raise UnusableAnswerError(f"--model: {problem}")
        return str(options.model)
    if questions.is_interactive:
        for number, proposal in enumerate(proposals, 1):
            say(f"  {number}  {proposal.name}  {proposal.description}".rstrip())
        if any(proposal.price is not None for proposal in proposals):
            say(
                f"(A report as the shipped daily-report: about {REPORT_USAGE.input:,} tokens read, "
                f"{REPORT_USAGE.output:,} written.)"
            )
    default = proposals[0].name if proposals else ""
    question = "Which one? A number" if proposals else "Which model?"
    if proposals and len(names) > len(proposals):
        question += f", or another of the {len(names):,} that {vendor.title} lists (? shows them)"
    while True:
        answer = questions.ask(
            f"{question}; Enter for 1:" if default else question,
            flag="--model",
            default=default,
        )
        if answer == "?":
            say("\n".join(names[:_MAX_SHOWN]))
            if len(names) > _MAX_SHOWN:
                say(f"… and {len(names) - _MAX_SHOWN:,} more")
            continue
        if answer.isdecimal() and 0 < int(answer[:9]) <= len(proposals):
            return proposals[int(answer) - 1].name
        problem = _explain_unlisted(answer, vendor, names, has_key=has_key)
        if not problem:
            return answer
        say(problem)


def _explain_unlisted(model: str, vendor: Vendor, names: list[str], *, has_key: bool) -> str:
    """Return what is wrong with the name of a model; empty if its vendor has it or lists none."""
    if not names or any(is_listed(model, name) for name in names):
        return ""
    similar_names = get_close_matches(model, names[:5000], 3)
    if similar_names:
        hint = f"did you mean {' or '.join(similar_names)}?"
    else:
        shown_names = names[:_MAX_NAMES_IN_ERROR]
        hint = f"it lists {', '.join(shown_names)}"
        if len(names) > len(shown_names):
            hint += f" and {len(names) - len(shown_names):,} more"
    key_text = " for this key" if has_key else ""
    return f"{vendor.title} lists no model {model!r}{key_text}; {hint}"
