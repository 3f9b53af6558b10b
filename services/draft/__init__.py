"""The draft service: guesses what the target will say next. Its answers change the speed, never the text."""
