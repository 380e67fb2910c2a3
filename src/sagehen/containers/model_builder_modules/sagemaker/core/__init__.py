"""The package's place in the SDK 3."""
