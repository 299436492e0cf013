"""Runs played again from their record, offline: identical, or where they part and why.

Theory of operation. The journal of a run is a cassette: what the model said, what the tools brought, what people
answered. `play` sends the run once more through the same gate, gather and loop as a live one, but with a model that
reads its answers from the cassette, hands that bring what was brought then, and a policy that judges anew. Then
compare.py holds the two against each other, step by step.

Not here: the journal (a cassette is read from it, nothing is written), tools, targets, the network. Only whoever asks
for another model or another prompt asks a model, through a meter that is handed in.
"""

from daemon.replay.cassette import Cassette, recorded
from daemon.replay.outcome import Outcome, Wish
from daemon.replay.play import play

__all__ = ["Cassette", "Outcome", "Wish", "play", "recorded"]
