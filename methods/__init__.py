"""Methods, one file each, with the representation a method brings beside it."""
