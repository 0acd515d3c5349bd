"""Stands in for pandas, which is imported and not used."""
