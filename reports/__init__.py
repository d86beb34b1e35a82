"""Tables, figures and studies, one file each, drawn from stored runs."""
