"""The loop that works the queue off: lease, send, watch, bring home, record; and what dead agents left."""
