"""Engines: arrays in, invoke, arrays out."""
