//! The tests of planning that look at the room from outside.

mod fit;
mod needs;
