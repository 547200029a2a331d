"""The PostgreSQL driver of the store: one database for any number of machines."""
