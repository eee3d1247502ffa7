//! Kinds of numbers: bytes in decimal and binary units, I/O a second of hosts and of drives, shares.
