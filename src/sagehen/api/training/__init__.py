"""Training jobs: SageMaker's operations on them."""
