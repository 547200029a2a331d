"""Pictures made with Pillow alone."""
