"""Operations: a request becomes a row or a read. Starts nothing."""
