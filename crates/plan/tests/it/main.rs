//! The tests of planning that look at the room from outside.

mod advice;
mod answered;
mod dell;
mod explained;
mod fit;
mod layout;
mod needs;
mod planned;
mod properties;
mod purchases;
mod servers;
mod site;
