"""Methods: a file each, or a folder for a family, with the representation that a method brings."""
