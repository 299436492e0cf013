"""A report that is JSON is compared with a schema of the workspace before its run ends."""

from __future__ import annotations

import json
import os

import pytest

from daemon.app.commands.validate import examine
from daemon.models import Status, StepKind
from daemon.runs.report_schema import ReportSchemaError, find_faults, load_schema
from tests.cli.agentctl import agentctl
from tests.replaying import ReplayedApp

PRICES = {
    "type": "object",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "$defs": {
        "item": {
            "type": "object",
            "required": ["name", "price"],
            "properties": {"price": {"type": "number"}, "unit": {"enum": ["kg", "piece"]}},
        }
    },
}
SUM = '[run]\nprompt = "Sum up."\n[check]\nschema = "prices.schema.json"\n{more}\n'
GOOD = '{"items": [{"name": "tea", "price": 3.2}]}'
BAD = '{"items": [{"name": "tea", "price": 3.2}, {"name": "oil", "price": "12"}]}'


def write_schema(app, schema=PRICES):
    app.workspace.mkdir(parents=True, exist_ok=True)
    text = schema if isinstance(schema, str) else json.dumps(schema)
    (app.workspace / "prices.schema.json").write_text(text)


@pytest.fixture
def app(tmp_path):
    app = ReplayedApp(tmp_path)
    write_schema(app)
    app.write_routine("sum", SUM.format(more=""))
    return app


async def answer(app, *answers):
    app.model.enqueue(*answers)
    return await app.run("sum")


@pytest.mark.parametrize(
    "report", [GOOD, f"\n{GOOD}\n", f"Here they are:\n\n```json\n{GOOD}\n```\nCheap today."]
)
async def test_a_report_that_fits_its_schema_is_delivered_as_it_is(app, report):
    async with app:
        run = await answer(app, report)
        assert (run.status, run.report) == (Status.SUCCEEDED, report.strip())


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (BAD, '$.items[1].price: expected number, found "12"'),
        ('{"items": [{"name": "tea"}]}', "$.items[0]: 'price' is a required property"),
        (
            '{"items": [{"name": "tea", "price": 1, "unit": "l"}]}',
            '$.items[0].unit: expected one of "kg", "piece", found "l"',
        ),
        ("Tea costs 3.20.", "it is no JSON: Expecting value"),
        ('{"items": NaN}', "it is no JSON: NaN is no number of JSON"),
        ("[" * 100_000, "it is no JSON: it is nested too deeply"),
        (
            f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
            "2 blocks are fenced as ```json, and one is expected",
        ),
    ],
)
async def test_a_report_that_does_not_fit_fails_with_the_place(app, report, reason):
    async with app:
        run = await answer(app, report)
        assert run.status is Status.FAILED
        assert run.detail.startswith(
            "the check failed: the report does not fit prices.schema.json: "
        )
        assert reason in run.detail


async def test_a_fault_is_told_in_few_words_however_long_the_report_is(app):
    async with app:
        items = [{"name": "tea", "price": "x" * 10_000}] * 1_000
        run = await answer(app, json.dumps({"items": items}))
        assert "$.items[2].price: expected number" in run.detail
        assert "items[3]" not in run.detail
        assert len(run.detail) < 1_500


async def test_the_model_is_told_the_place_and_repairs_its_report(app):
    app.write_routine("sum", SUM.format(more="repair = 1"))
    async with app:
        run = await answer(app, BAD, GOOD)
        assert (run.status, run.report) == (Status.SUCCEEDED, GOOD)
        question = app.model.calls[1].messages[-1].content
        assert '$.items[1].price: expected number, found "12"' in question
        calls = [step.call_id for step in await app.steps(run) if step.kind is StepKind.CALL]
        assert calls == ["check.schema.0", "check.schema.1"]
        async with app.serve_api() as socket:
            output = (await agentctl(socket, "inspect", run.id)).out
            assert 'expected number, found "12"' in output


async def test_a_script_is_held_to_a_schema_too(app):
    app.write(
        "policy.toml", 'version = 1\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = [["cat"]]\n'
    )
    (app.workspace / "prices.json").write_text(GOOD)
    app.write_routine(
        "sum",
        '[run]\nmode = "script"\n[[gather]]\nname = "prices"\ntool = "shell"\n'
        'args = { command = "cat prices.json" }\n[check]\nschema = "prices.schema.json"\n',
    )
    async with app:
        assert (await app.run("sum")).status is Status.SUCCEEDED
        (app.workspace / "prices.json").write_text(BAD)
        run = await app.run("sum")
        assert (run.status, run.report) == (Status.FAILED, BAD)
        assert "$.items[1].price" in run.detail


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("", "is no JSON"),
        ('{"type": "nubmer"}', "is no JSON Schema: $.type: "),
        ('{"$ref": "https://example.com/a.json"}', "nothing is fetched"),
        ('{"$ref": "other.json#/a"}', "nothing is fetched"),
        ('{"$ref": "#/$defs/away"}', "refers to what it does not hold"),
        ('{"$ref": "#"}', "refers to itself without end"),
        ('{"properties": {"a": {"$ref": "#/$defs/b"}}}', "refers to what it does not hold"),
        ('{"pattern": "("}', "is no JSON Schema: $.pattern: "),
        ('{"required": "a"}', "is no JSON Schema: $.required: "),
        ('{"multipleOf": 0}', "is no JSON Schema: $.multipleOf: "),
        ('{"items": [{}]}', "is no JSON Schema: $.items: "),
        ('{"$ref": 3}', "is no JSON Schema: "),
        ("[]", "is no JSON Schema: expected an object"),
        ('{"$schema": 3}', "is no JSON Schema: $schema: expected a text"),
        ('{"$schema": ["x"]}', "is no JSON Schema: $schema: expected a text"),
        ('{"title": "%s"}' % ("x" * 262_144), "is longer than the 262,144 bytes"),
        ("[" * 100_000, "is no JSON: it is nested too deeply"),
    ],
)
async def test_a_file_that_is_no_schema_is_refused_when_the_routine_is_loaded(app, schema, problem):
    write_schema(app, schema)
    async with app:
        fault = str(app.faults["sum"])
        assert "check.schema: " in fault
        assert problem in fault


async def test_a_schema_that_is_missing_is_refused_and_taken_once_it_is_there(app, tmp_path):
    (app.workspace / "prices.schema.json").unlink()
    (fault,) = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state").faults
    assert (fault.key, fault.problem) == (
        "check.schema",
        "cannot be read in the workspace: No such file or directory",
    )
    os.utime(app.folder / "routines" / "sum.toml", (1_000_000_000, 1_000_000_000))
    async with app:
        assert "sum" in app.faults
        write_schema(app)
        contents = await app.daemon.reloader.load_routines()
        assert contents.faults == {}


async def test_a_schema_that_was_removed_since_fails_the_run_without_a_repair(app):
    app.write_routine("sum", SUM.format(more="repair = 3"))
    async with app:
        (app.workspace / "prices.schema.json").unlink()
        run = await answer(app, GOOD)
        assert run.status is Status.FAILED
        assert "its schema prices.schema.json cannot be read in the workspace" in run.detail
        assert len(app.model.calls) == 1


@pytest.mark.parametrize("path", ["/etc/passwd", "../config.toml", "~/a.json"])
async def test_a_schema_lies_in_the_workspace(app, path):
    app.write_routine("sum", f'[run]\nprompt = "a"\n[check]\nschema = "{path}"\n')
    async with app:
        assert "check.schema: leaves the workspace" in str(app.faults["sum"])


def test_no_link_and_no_pipe_is_read_as_a_schema(tmp_path):
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    os.mkfifo(tmp_path / "pipe.json")
    for name, problem in (("link.json", "cannot be read"), ("pipe.json", "is no file")):
        with pytest.raises(ReportSchemaError, match=problem):
            load_schema(tmp_path, name)


def test_a_number_that_is_too_large_for_the_schema_is_a_fault(tmp_path):
    (tmp_path / "a.json").write_text('{"multipleOf": 0.1}')
    validator = load_schema(tmp_path, "a.json")
    assert find_faults(validator, "1" + "0" * 400)
    assert find_faults(validator, "0.2") == ""


def test_an_unknown_key_of_check_is_answered_with_schema(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write_routine("sum", '[run]\nprompt = "a"\n[check]\nshema = "a.json"\n')
    (fault,) = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state").faults
    assert "schema" in fault.hint
