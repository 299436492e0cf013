"""From a goal to a reply: the prompt, the loop, and the transcript that both a live and a resumed run read from.

Not here: how a vendor is spoken to (providers), what a call may do (policy), how a tool works (tools), and when a run
starts or ends (run).
"""

from daemon.agent.agent import Agent
from daemon.agent.hands import Hands, NobodyToAsk, Parked, Ruling
from daemon.agent.loop import Limits
from daemon.agent.prompt import Persona, PromptContext, render
from daemon.agent.transcript import Transcript

__all__ = [
    "Agent",
    "Hands",
    "Limits",
    "NobodyToAsk",
    "Parked",
    "Persona",
    "PromptContext",
    "Ruling",
    "Transcript",
    "render",
]
