"""The LDC paper's claims, one by one."""
