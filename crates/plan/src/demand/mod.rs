//! What the users of a profile need of storage.
