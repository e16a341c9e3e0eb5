"""Sources: logs of Nodrop and of other systems, read into a record. None knows another."""
