"""Embedders: one abstract class, and a module for each kind of model or server.

An embedder is optional; without one, searches use words only.
"""
