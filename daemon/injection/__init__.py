"""Does a tool's result talk to the model instead of informing it? A label, never the wall: that is policy and taint.

plain.py and readings.py take disguises off, rules/*.toml know the phrases, signs.py looks for them, check.py adds them
up. Explicit commands to an agent are found ("ignore your instructions", forged chat turns, a new persona); an
instruction that reads like any other sentence is not, and cannot be. What follows from a finding is decided by whoever
asked.
"""

from daemon.injection.check import (
    Block,
    Detector,
    Finding,
    Pass,
    Review,
    Warn,
    check_tool_result,
    needs_injection_check,
)

__all__ = [
    "Block",
    "Detector",
    "Finding",
    "Pass",
    "Review",
    "Warn",
    "check_tool_result",
    "needs_injection_check",
]
