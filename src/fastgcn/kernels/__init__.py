"""Compiled inner loops, each with a plain reference that tests compare it to."""
