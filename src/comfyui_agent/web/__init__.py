"""How people and programs talk to E3 over HTTP: the page, the API, the probes."""
