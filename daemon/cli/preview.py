"""`agentctl preview`: what a run of a routine would send to the model first."""

from __future__ import annotations

from daemon.cli.call import DONE, Call, quote
from daemon.cli.inspect import describe_left_out, describe_model, write_text
from daemon.cli.render import BOLD, DIM


def preview(call: Call) -> int:
    """Print the prompt, tools and task of a run, and about how many tokens each part takes; the
    texts themselves with --full.
    """
    answer = call.request("GET", f"/v1/routines/{quote(call.routine)}/preview")
    if answer is None:
        return DONE
    out = call.out
    out.write_line(
        f"{out.paint(answer['routine'], BOLD)}  about {answer['tokens']:,} tokens to "
        f"{out.sanitize(describe_model(answer))}"
    )
    for title, parts in (
        ("Prompt", answer["sections"]),
        ("Tools", answer["functions"]),
        ("Task", [answer["task"]]),
    ):
        if not parts:
            continue
        out.write_title(f"{title}, about {sum(part['tokens'] for part in parts):,} tokens")
        for part in parts:
            tokens = out.paint(f"{part['tokens']:>7,} tokens", DIM)
            out.write_line(f"  {out.sanitize(part['name']):<16} {tokens}")
            if call.full:
                write_text(out, part["text"], full=True, indent="    ")
    definition = call.client.request("GET", f"/v1/routines/{quote(call.routine)}")["definition"]
    if fact_names := [step["name"] for step in definition.get("gather", ())]:
        out.write_line()
        names = out.sanitize(", ".join(fact_names))
        out.write_line(f"Not counted, as a preview gathers nothing: the facts {names}.")
    if left_out := answer["left_out"]:
        out.write_title("Left out")
        out.write_line(f"  {out.sanitize(describe_left_out(left_out))}")
    return DONE
