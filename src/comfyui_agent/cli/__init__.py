"""How people talk to E3 in a terminal: parse, call, print."""
