"""Where guesses come from, what they are worth, and how many of them a round carries."""
