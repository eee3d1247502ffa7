//! Which choices of the catalogue meet the needs, in order.
