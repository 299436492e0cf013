"""Recorded runs executed again, offline: identical, or where they differ and why.

The journal of a run is a cassette: what the model said, what the tools brought, what people
answered. play.py takes the run once more through the same gate, gather and loop as a live one, but
with a model that reads its answers from the cassette, tools that return the recorded results, and a
policy that judges anew. Then compare.py compares the two, step by step.

Not here: the journal (a cassette is read from it, nothing is written), tools, targets, the network.
A model is asked only where another model or another prompt is tried, through a provider that the
caller passes and that counts what it costs.
"""
