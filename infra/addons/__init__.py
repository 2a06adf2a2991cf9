"""What each add-on is installed with: one pure plan per file, and what makes plans resources."""
