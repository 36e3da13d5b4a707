"""The figures that the README quotes, a command for each."""
