"""The reports of the lab: the same classes write the JSON files and read them back."""
