"""Artifacts between the nodes of a cluster: fetched from one that has them, not from the store.

Each artifact has a keeper, a node that all find by the URL of the model data. A node that needs an
artifact asks its keeper for a source (`directory.py`), fetches it there (`fetcher.py`), and is a
source itself from then on (`routes.py`). Stores of offline results are copied from the leader's
node to all others (`result_stores.py`).
"""
