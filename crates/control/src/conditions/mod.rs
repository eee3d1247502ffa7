//! Conditions: what lasts, such as a pool that is nearly full. Level-triggered: one event when it begins, one when it has ended.
//!
//! Reading order: `board` (what is open; plain state), `space_level` and `drive_pace` (levels with hysteresis), `login_rate`,
//! `evaluation` (from views to claims), with `dr_claims`; `dr_news` (what has happened to DR groups).

mod board;
mod dr_claims;
mod dr_news;
#[cfg(test)]
mod dr_tests;
mod drive_pace;
mod evaluation;
mod login_rate;
mod space_level;

pub use board::{Acknowledgement, ConditionBoard, ConditionClaim, OpenCondition, condition_id};
pub(crate) use dr_news::DrWatch;
pub(crate) use evaluation::ConditionEvaluator;
pub(crate) use login_rate::LoginTally;
