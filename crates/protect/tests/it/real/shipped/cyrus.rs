//! cyrus
