"""Runs played again from their record, offline: identical, or where they part and why.

The journal of a run is a cassette: what the model said, what the tools brought, what people
answered. `play` sends the run once more through the same gate, gather and loop as a live one, but
with a model that reads its answers from the cassette, tools that bring what was brought then, and a
policy that judges anew. Then compare.py holds the two against each other, step by step.

Not here: the journal (a cassette is read from it, nothing is written), tools, targets, the network.
Only whoever asks for another model or another prompt asks a model, through a meter that is handed
in.
"""
