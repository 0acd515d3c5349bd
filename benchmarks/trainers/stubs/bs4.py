"""Stands in for Beautiful Soup, which the data sets used here do not need."""


class BeautifulSoup:
    """Never built."""


class NavigableString(str):
    """Never built."""
