"""Media types, by AWS's names."""

JSON = "application/json"
CSV = "text/csv"
NPY = "application/x-npy"
ANY = "*/*"
UTF8_TYPES = [JSON, CSV]
