"""What papers print, for every report that shows it beside what is measured."""

from .alone import PublishedAlone, published_alone
from .rows import PublishedRow, chosen_published, of_measured, published_name, published_rows
from .table import footnotes, other_terms, published_section

__all__ = [
    "PublishedAlone",
    "PublishedRow",
    "chosen_published",
    "footnotes",
    "of_measured",
    "other_terms",
    "published_alone",
    "published_name",
    "published_rows",
    "published_section",
]
