"""SFMS: synthesised features, and vectors of classes on a mixture of subspaces."""
