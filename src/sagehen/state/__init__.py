"""The state: tables, migrations and the SQL helpers over them."""
