"""Who may ask over HTTP, and how much: tokens, sessions, proxies, origins, limits, and where to listen."""
