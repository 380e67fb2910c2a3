"""Run by Alembic around the migrations, with the connection that `state.migrate` holds."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
