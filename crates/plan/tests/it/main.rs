//! The tests of planning that look at the room from outside.

mod fit;
mod layout;
mod needs;
mod site;
