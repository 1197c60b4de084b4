"""Where questions and commands are typed."""
