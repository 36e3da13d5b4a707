"""Every figure that the README quotes, one command each."""
