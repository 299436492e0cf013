"""Skills: strict parsing, selection by a model, and reading by the tool."""

import asyncio

import pytest

from daemon.agent.skill_choice import (
    Direct,
    NeedClarification,
    Skills,
    choose_skills,
    parse_answer,
)
from daemon.definitions.skills import load_skills
from daemon.errors import BadKey, OverBudget, ToolFailed
from daemon.models import Usage
from tests.acceptance.story import Vendor

GUIDE = "---\nname: {name}\ndescription: {about}\n---\n# How\nDo it {name}-wise.\n"


def write(folder, name, text=None, **files):
    (folder / name).mkdir(parents=True)
    text = GUIDE.format(name=name, about=f"For {name}.") if text is None else text
    (folder / name / "SKILL.md").write_text(text)
    for file, content in files.items():
        (folder / name / f"{file}.md").write_text(content)


def test_a_folder_of_skills_is_loaded_as_a_catalog(tmp_path):
    write(tmp_path, "disk-care", details="more")
    write(tmp_path, "backup")
    catalog = load_skills(tmp_path)
    assert catalog.list_skills() == [("backup", "For backup."), ("disk-care", "For disk-care.")]
    assert catalog.guides(["backup", "nothing"]) == "## Skill: backup\n# How\nDo it backup-wise."
    assert catalog.read_guide("disk-care").endswith("Files of this skill: details.md")
    assert catalog.read_guide("disk-care", "details.md") == "more"
    assert not catalog.faults
    assert load_skills(tmp_path / "nowhere").skills == {}


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("# no front matter", "has no front matter"),
        ("---\nname: [broken\n---\nx", "is no YAML"),
        ("---\n- a list\n---\nx", "no list of keys"),
        ("---\nname: other\ndescription: x\n---\nx", "has to be that of its folder"),
        ("---\nname: Broken One\ndescription: x\n---\nx", "a-z, 0-9 and single -"),
        ("---\nname: broken\n---\nx", "has to say what it is for"),
        (f"---\nname: broken\ndescription: {'x' * 1025}\n---\nx", "at most 1024 characters"),
    ],
)
def test_broken_skill_is_reported_with_its_place_and_other_skills_load(
    tmp_path, text, expected_text
):
    write(tmp_path, "fine")
    write(tmp_path, "broken", text)
    catalog = load_skills(tmp_path)
    assert list(catalog.skills) == ["fine"]
    assert expected_text in str(catalog.faults["broken"]) and "broken/SKILL.md" in str(
        catalog.faults["broken"]
    )


def test_what_lies_in_a_hidden_folder_of_a_skill_is_not_listed(tmp_path):
    write(tmp_path, "fine", details="x")
    for name in (".git/objects/ab/cd", ".draft.md", "examples/.hidden", "examples/one.md"):
        (tmp_path / "fine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fine" / name).write_text("x")
    guide = load_skills(tmp_path).read_guide("fine")
    assert guide.endswith("Files of this skill: details.md, examples/one.md")


@pytest.mark.parametrize("file", ["../secret.txt", "/etc/passwd", "link", "nothing.md", "..", "."])
def test_a_skill_reads_only_its_own_files(tmp_path, file):
    (tmp_path / "secret.txt").write_text("secret")
    write(tmp_path / "skills", "fine", details="x")
    (tmp_path / "skills/fine/link").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ToolFailed, match="has no file"):
        load_skills(tmp_path / "skills").read_guide("fine", file)


def test_yaml_tags_construct_no_objects(tmp_path):
    write(
        tmp_path,
        "evil",
        "---\nname: !!python/object/apply:os.system ['true']\ndescription: x\n---\n",
    )
    assert "is no YAML" in str(load_skills(tmp_path).faults["evil"])


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("SKILLS: disk-care, backup", Skills(("disk-care", "backup"))),
        ("skills: backup, backup, unknown", Skills(("backup",))),
        ("SKILLS: unknown", Direct()),
        ("DIRECT", Direct()),
        ("I think:\n**CLARIFY:** Which disk?", NeedClarification("Which disk?")),
        ("CLARIFY:", Direct()),
        ("", Direct()),
        ("Sure, I can help with backup!", Direct()),
    ],
)
def test_unclear_routing_answer_selects_no_skill(answer, decision):
    assert parse_answer(answer, {"disk-care", "backup"}) == decision


async def refuse(messages):
    raise BadKey("the key is wrong")


async def refuse_by_cap(messages):
    raise OverBudget("the cap on spending is reached", rule="[budget] day")


async def never_answer(messages):
    await asyncio.Event().wait()


@pytest.mark.parametrize("ask", [refuse, refuse_by_cap, never_answer])
async def test_a_model_that_cannot_be_asked_for_skills_selects_none(ask):
    choice = await choose_skills(ask, "Go.", [], [("backup", "For it.")], "", "en", timeout=0)
    assert choice == (Direct(), Usage())


def home_with(home, vendor, skills):
    home.write(
        "config.toml",
        (
            'provider = "v"\n[providers.v]\nkind = "open_source"\nbase_url = '
            f'"{vendor.url}/v1"\nmodel = "m"\n'
        ),
    )
    home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "skill"\neffect = "allow"\n')
    home.routine(
        "care",
        (
            '[run]\nmode = "agent"\nprompt = "Look after the disks."\nskills = '
            f'{skills}\n[[deliver]]\nto = "log"\n'
        ),
    )
    write(home.folder / "skills", "disk-care", details="Use smartctl.")
    write(home.folder / "skills", "poems")


async def test_model_chooses_a_skill_first_and_reads_details_with_the_tool(home):
    skill_call = {"name": "skill", "arguments": {"name": "disk-care", "file": "details.md"}}
    async with Vendor(
        ["SKILLS: disk-care", {"tool_calls": [skill_call]}, "All is well."]
    ) as vendor:
        home_with(home, vendor, '"auto"')
        await home.start()
        ran = (await home.agentctl("run", "care", "--json")).json
        assert (ran["status"], ran["report"]) == ("succeeded", "All is well.")
        first, second, third = (request.body for request in vendor.requests)
        assert "tools" not in first and "disk-care: For disk-care." in str(first["messages"])
        system = second["messages"][0]["content"]
        assert (
            "Do it disk-care-wise." in system
            and "poems: For poems." in system
            and "poems-wise" not in system
        )
        assert third["messages"][-1]["content"].endswith("Use smartctl.") or "Use smartctl." in str(
            third["messages"][-1]
        )
        assert ran["usage"]["output"] > 0


async def test_skills_named_by_the_routine_are_loaded_without_a_model_call(home):
    async with Vendor(["Done."]) as vendor:
        home_with(home, vendor, '["poems"]')
        await home.start()
        assert (await home.agentctl("run", "care")).code == 0
        assert "Do it poems-wise." in vendor.requests[0].body["messages"][0]["content"]


async def test_an_unclear_task_fails_with_the_question_of_the_router(home):
    async with Vendor(["CLARIFY: Which of the disks?"]) as vendor:
        home_with(home, vendor, '"auto"')
        await home.start()
        ran = (await home.agentctl("run", "care", "--json")).json
        assert (ran["status"], ran["report"]) == ("failed", "Which of the disks?")
        assert len(vendor.requests) == 1


async def test_question_of_the_router_is_put_to_the_person_in_a_conversation(home):
    async with Vendor(["CLARIFY: Which of the disks?", "DIRECT", "It is fine."]) as vendor:
        home_with(home, vendor, "[]")
        await home.start()
        result = await home.agentctl("ask", "is it well?")
        assert (result.code, result.out.strip()) == (0, "Which of the disks?")
        result = await home.agentctl("ask", "the second one")
        assert result.out.strip() == "It is fine."
        assert [m["content"] for m in vendor.requests[1].body["messages"][1:]][:2] == [
            "is it well?",
            "Which of the disks?",
        ]


async def test_failed_routing_continues_without_a_skill(home):
    async with Vendor([{"status": 400, "error": "no"}, "Done."]) as vendor:
        home_with(home, vendor, '"auto"')
        await home.start()
        assert (await home.agentctl("run", "care", "--json")).json["status"] == "succeeded"
