//! Login, authentication and negotiation of a session.

pub mod chap;

pub mod login;

pub mod negotiation;
