"""Memory: items by key, archived runs as segments with anchors, and one full-text index over both.

Other packages use memory.py. archive.py makes the segments of a run and summary.py asks a model for
a summary of them; rows.py and index.py write them, and folding.py keeps reports that differ in
numbers only out of the index. memory_store.py runs the transactions and repairs a damaged index.
recall.py finds what fits a question, by words (fulltext/) and by embeddings (embedders/,
embedding_index.py, vectors.py). erasure/ erases what a person names; retention.py deletes what is
old, and maintenance.py calls it every day. markdown_mirror.py keeps MEMORY.md, transfer.py exports
and imports.

Not here: which runs may be archived; their routines decide that.
"""
