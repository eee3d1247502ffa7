//! Texts of groups that come in parts, over one session.

use super::site_message::{SERVICE_PARTS_MAX, ServicesPart, group_of};
use array::format::GroupId;
use std::{cell::RefCell, collections::BTreeMap};

/// Parts that came, in their order.
#[derive(Default)]
pub(super) struct PartInbox(RefCell<BTreeMap<GroupId, Vec<String>>>);

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
        let group = group_of(group).map_err(|refusal| refusal.problem().to_owned())?;
        let mut arriving = self.0.borrow_mut();
        let so_far = arriving.entry(group).or_default();
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
        Ok(Some((group, arriving.remove(&group).unwrap_or_default().concat())))
    }
}
