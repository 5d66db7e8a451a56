"""Delegates: one file per accelerator; nothing is imported until asked for, and nothing of edged is imported here."""
