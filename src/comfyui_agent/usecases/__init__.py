"""What people and programs ask for, each once, whichever interface they ask through."""
