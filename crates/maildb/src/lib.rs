//! The mailbox database.
