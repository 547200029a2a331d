"""Reports as pages: one file each that needs nothing else, reads without a script, and prints well."""
