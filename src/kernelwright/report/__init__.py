"""Results for people and for programs: terminal text and JSON."""
