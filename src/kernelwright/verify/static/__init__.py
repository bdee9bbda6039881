"""What reading a candidate shows before anything runs."""
