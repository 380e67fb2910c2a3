"""The only SQL: tables, migrations, and the statements over them."""
