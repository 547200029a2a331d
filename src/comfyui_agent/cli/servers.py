"""stub"""


def servers() -> None:
    """Look at servers."""
