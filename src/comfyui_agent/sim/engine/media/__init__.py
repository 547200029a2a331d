"""Small writers of real, playable files: no codec library is needed to simulate a save node."""
