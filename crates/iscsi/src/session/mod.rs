//! Sessions: how an initiator logs in, and what its two ends agree on.

pub mod chap;

pub mod login;

pub mod negotiation;
