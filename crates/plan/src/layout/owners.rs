//! Ownership of volumes by controllers.

use std::collections::BTreeMap;

/// Hands out controllers in turn, for each group on its own. A log goes with its database (HP EVA8000, "LUN ownership":
/// SG1 and SG1 logs on controller 1, SG2 and SG2 logs on controller 2), so both are owned evenly.
pub struct Owners {
    controllers: Vec<String>,
    given: BTreeMap<String, usize>,
}

impl Owners {
    /// Controllers in turn; empty if volumes have no owner.
    pub fn new(controllers: Vec<String>) -> Self {
        Self { controllers, given: BTreeMap::new() }
    }

    /// The owner of the next database of `group`, and of its log; empty if volumes have no owner.
    pub fn next(&mut self, group: &str) -> String {
        if self.controllers.is_empty() {
            return String::new();
        }
        let given = self.given.entry(group.to_owned()).or_default();
        *given += 1;
        self.controllers[(*given - 1) % self.controllers.len()].clone()
    }
}
