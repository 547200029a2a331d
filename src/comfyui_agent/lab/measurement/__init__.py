"""What is measured while something else works: the graphics card, the machine, and numbers made of many."""
