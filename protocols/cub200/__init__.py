"""CUB-200-2011, from its archive or unpacked."""
