"""The LDC's telephone corpora, from their own folders."""
