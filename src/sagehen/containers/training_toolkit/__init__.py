"""The program in a training job's container that runs a user's script, as AWS's toolkit does."""
