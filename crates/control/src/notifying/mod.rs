//! Notifiers: events go to people and programs that do not look by themselves, as webhooks or mail.
//!
//! Reading order: `wanted` (the notifiers of a site file, checked), `place` (how far each has come), `composing` (events as
//! messages), `delivery` (one attempt), `webhook` and `smtp` (the two ways out), `pace` (when to try again, and when another channel takes over; plain
//! state), `lane` (the flow), `digest` (once a day), `thread` (all of it, with the conditions, on a thread of its own).
//!
//! Invariants:
//!
//! 1. Each event that a notifier wants is delivered at least once, in order, also over restarts; a place moves on only when the
//!    receiver has accepted everything before it. Of mail, each severity is a lane with an order of its own.
//! 2. What was dropped before it could be delivered is said in the next message.
//! 3. One channel that fails keeps no other waiting.
//! 4. Nothing here starts a program.

mod composing;
mod delivery;
mod digest;
mod lane;
mod pace;
mod place;
mod smtp;
mod thread;
mod wanted;
mod webhook;

pub use place::{NotifierPlace, NotifierState, TestRefusal, TestRequest};
pub use thread::{EventThread, EventThreadSetting};
pub use wanted::{NotifierChannel, WantedNotifier};
pub(crate) use wanted::{notifier_texts, wanted_notifiers, without_urls};
