"""What several families of methods use: statistics, prototypes, training, classifiers."""
