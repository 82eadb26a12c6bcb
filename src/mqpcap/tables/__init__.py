"""Columns to the tables of the contract: Arrow, Parquet and JSON lines."""
