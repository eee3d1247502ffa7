//! Notices about a pool that is open, for the program that has it open.

/// Takes notices as they come. Nothing in this crate prints.
pub trait Notices {
    /// Something an administrator should act on.
    fn warn(&self, text: &str);

    /// Something good to know.
    fn note(&self, text: &str);
}
