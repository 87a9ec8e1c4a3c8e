"""A run made again from what it recorded, and a report of what differs."""
