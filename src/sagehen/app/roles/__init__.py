"""What each process of a server is made of: builds its objects and runs them."""
