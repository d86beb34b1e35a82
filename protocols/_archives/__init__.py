"""Archives that readers share: tar, zip, pickles, and what each is refused for."""
