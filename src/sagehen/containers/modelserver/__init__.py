"""The program inside a container: SageMaker's container contract plus framework adapters."""
