"""The version of q1pipe: of this source, whether it is installed or not."""

VERSION = "0.1.0"
