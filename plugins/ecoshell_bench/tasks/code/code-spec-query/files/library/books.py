"""Books of the catalogue."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Book:
    title: str
    author: str
    year: int | None = None
    pages: int | None = None
    tags: tuple = ()


SHELF = (
    Book("The Grey Lake", "Mary Ash", 1990, 320, ("sea", "winter")),
    Book("Lakeside walks", "Tom Reed", 2001, 120, ("walking",)),
    Book("A history of salt", "Mary Oak", None, 540, ("sea", "trade")),
    Book("Winter, again", "ann lake", 1948, None, ()),
    Book("Trade and War", "Jo Ash", 1990, 410, ("history",)),
)
