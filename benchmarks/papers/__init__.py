"""Claims of the papers, tried on real data: one file a claim, and one that writes the docs' tables.

Every recipe takes a data directory and an output directory, fixes its seeds, and can be stopped at
any moment and started again: finished models are not trained twice, and a model that was cut off
goes on from its last checkpoint to the same weights. Each model leaves one JSON file.
"""
