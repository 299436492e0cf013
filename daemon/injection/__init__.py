"""Does a tool's result give orders to the model instead of informing it?

A finding only labels a text; what protects are policy and taint. Explicit commands to an agent are
found ("ignore your instructions", forged chat turns, a new persona); an instruction that reads like
any other sentence is not, and cannot be. Not here: what follows from a finding.
"""
