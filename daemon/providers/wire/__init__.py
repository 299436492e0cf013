"""The three wire formats of vendors, as functions from values to values: convert a conversation to
the JSON of a request, and parse an answer.

The JSON of a message depends on that message and on earlier ones, never on later ones: vendors
verify and cache the beginning of a conversation, so it must be the same text in every request. Not
here: connections, keys, errors by HTTP status, timeouts.
"""
