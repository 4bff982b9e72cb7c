"""The find engine: which solver wins, measured, looked up or estimated, and plans that run the winner."""
