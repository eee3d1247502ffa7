//! Conditions: what lasts, such as a pool that is nearly full. Level-triggered: one event when it begins, one when it has ended.
//!
//! Reading order: `board` (what is open; plain state), `space_level` and `drive_pace` (levels with hysteresis), `login_rate`,
//! `evaluation` (from views to claims).

mod board;
mod drive_pace;
mod evaluation;
mod login_rate;
mod space_level;

pub use board::{Acknowledgement, ConditionBoard, ConditionClaim, OpenCondition, condition_id};
pub(crate) use evaluation::ConditionEvaluator;
pub(crate) use login_rate::LoginTally;
