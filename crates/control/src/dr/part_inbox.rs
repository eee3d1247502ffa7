//! Texts of groups and sets that come in parts, over one session.

use super::site_message::{SERVICE_PARTS_MAX, ServicesPart, group_of};
use array::format::GroupId;
use std::{cell::RefCell, collections::BTreeMap};

/// Parts that came, in their order.
#[derive(Default)]
pub(super) struct PartInbox(RefCell<BTreeMap<String, Vec<String>>>);

impl PartInbox {
    /// Takes a part. Returns the whole text with the last one.
    ///
    /// # Errors
    ///
    /// It is out of order, or the group has no UUID.
    pub fn take(
        &self,
        group: &str,
        (part, parts): (usize, usize),
        text: ServicesPart,
    ) -> Result<Option<(GroupId, String)>, String> {
        let id = group_of(group).map_err(|refusal| refusal.problem().to_owned())?;
        Ok(self.take_text(group, (part, parts), text)?.map(|whole| (id, whole)))
    }

    /// The same, of a text that has another name.
    ///
    /// # Errors
    ///
    /// It is out of order.
    pub fn take_text(
        &self,
        name: &str,
        (part, parts): (usize, usize),
        text: ServicesPart,
    ) -> Result<Option<String>, String> {
        let mut arriving = self.0.borrow_mut();
        let so_far = arriving.entry(name.to_owned()).or_default();
        if part == 0 {
            so_far.clear();
        }
        if part != so_far.len() || parts > SERVICE_PARTS_MAX {
            return Err("the parts of a group's text are out of order".to_owned());
        }
        so_far.push(text.into_text());
        if so_far.len() < parts {
            return Ok(None);
        }
        Ok(Some(arriving.remove(name).unwrap_or_default().concat()))
    }
}
