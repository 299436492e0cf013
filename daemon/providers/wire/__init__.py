"""The three languages that vendors speak, as functions from values to values.

In this room: how a conversation is written down for a vendor and how its answer is read. Not in this room: connections,
keys, errors by status, waiting; nothing here does I/O or keeps anything.

Each file is one language and ends in its `Wire`. They share one discipline, since several vendors verify it and all
cache by it: what is written for a message depends on that message and on what stands before it, never on what follows;
so a conversation that only grows is written as a text that only grows.
"""
