"""What papers print, for every report that shows it beside what is measured."""

from .alone import PublishedAlone, published_alone
from .notes import footnotes, other_terms
from .rows import PublishedRow, chosen_published, published_rows
from .table import published_section

__all__ = [
    "PublishedAlone",
    "PublishedRow",
    "chosen_published",
    "footnotes",
    "other_terms",
    "published_alone",
    "published_rows",
    "published_section",
]
