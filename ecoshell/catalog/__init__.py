"""What is known: the tools by name, which are registered, how they fit a question, and whose documents pay."""
