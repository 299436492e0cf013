"""Memory: items by key, archived runs as segments with anchors, and one full-text index over both.

Other packages use memory.py. archive.py makes the segments of a run, rows.py and index.py write
them; recall.py finds what fits a question, by words (fulltext/) and by embeddings (embedders/,
embedding_index.py). erasure/ forgets for good what a person names; retention.py deletes what is
old. markdown_mirror.py keeps MEMORY.md.

Not here: which runs may be archived; their routines decide that.
"""
