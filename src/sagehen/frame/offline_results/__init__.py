"""Results computed in advance, from which an endpoint answers while its model cannot."""
