//! Integration tests of the arithmetic of schedules.

mod histories;
