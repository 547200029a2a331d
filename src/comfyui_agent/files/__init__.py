"""Where results and input pictures live: a folder, or an object store. Files are published whole and once."""
