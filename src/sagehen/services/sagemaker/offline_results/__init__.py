"""Results computed in advance: builds the stores from which gateways answer."""
