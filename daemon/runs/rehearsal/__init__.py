"""Routines tried with the real model before they are trusted: nothing they do takes effect."""
