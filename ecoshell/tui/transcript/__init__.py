"""What was asked, thought, called and answered, as lines that cost nothing while they are off screen."""
