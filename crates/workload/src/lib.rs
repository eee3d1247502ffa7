//! Loads and what they show: profile, arrival, measure, verdict.
//!
//! A load tool is a pipe of passive data: a *profile* says what one kind of user does, a *plan* says
//! how much of it and on which storage, the *driver* does it and measures, *results* are plain
//! values that can be saved and judged again later, a *verdict* compares them with published
//! limits, and a *document* is what a person reads. Nothing in here parses arguments, draws
//! progress or writes report files; the command line does.
//!
//! * [`database`]: real mailbox databases under real transactions (what Jetstress did).
//!
//! Simulated mail clients (what LoadSim and LoadGen did) will become a second module, `client`,
//! with their first code.

pub mod database;
