"""Which node an instance or a job goes to, where there are several machines."""
