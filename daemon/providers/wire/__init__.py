"""The three wire formats that vendors speak, as functions from values to values.

How a conversation is written for a vendor and how its answer is read. What is written for a message
depends on that message and on what stands before it, never on what follows: vendors verify it and
cache by it, so a conversation that only grows is written as a text that only grows. Not here:
connections, keys, errors by status, waiting.
"""
