//! Verifications of sets that the site that keeps them wants from the other one, and the verdicts, over one session.

use super::{
    link_thread::Link,
    part_inbox::PartInbox,
    set_exchange::sets_with,
    site_message::{ServicesPart, SiteMessage},
};
use crate::sets::SetRole;
use array::format::SiteId;
use protect::set_keeper::{ReplicaVerdict, ReplicaVerification};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

/// Verifications and verdicts on their way.
#[derive(Default)]
pub(super) struct VerdictExchange {
    /// As the other site has them from this session.
    wanted: RefCell<BTreeMap<String, Option<Arc<ReplicaVerification>>>>,
    /// Verdicts that were sent over this session.
    sent: RefCell<BTreeMap<String, Arc<ReplicaVerdict>>>,
    arriving: [PartInbox; 2],
    /// Complete ones, until they are kept.
    asked: RefCell<BTreeMap<String, Option<ReplicaVerification>>>,
    verdicts: RefCell<BTreeMap<String, ReplicaVerdict>>,
}

impl VerdictExchange {
    /// Messages with what the other site does not have. With a new session it gets all of it again.
    pub fn due(&self, link: &Link, peer: SiteId) -> Vec<SiteMessage> {
        let mut messages = Vec::new();
        for (set, replication) in sets_with(link, peer) {
            if replication.role == SetRole::Keeps {
                let mut known = self.wanted.borrow_mut();
                if known.get(&set) != Some(&replication.wanted) {
                    let text = serde_json::to_string(&replication.wanted.as_deref()).expect("plain fields");
                    messages.extend(SiteMessage::verification(&set, &text).into_iter().flatten());
                    known.insert(set.clone(), replication.wanted);
                }
            }
            let mut sent = self.sent.borrow_mut();
            if let Some(verdict) = replication.verdict.filter(|verdict| sent.get(&set) != Some(verdict)) {
                let text = serde_json::to_string(&*verdict).expect("plain fields");
                messages.extend(SiteMessage::verdict(&set, &text).into_iter().flatten());
                sent.insert(set, verdict);
            }
        }
        messages
    }

    /// Takes a part of a verification that the other site wants.
    ///
    /// # Errors
    ///
    /// It is out of order, or all parts together are none.
    pub fn take_verification(
        &self,
        set: &str,
        (part, parts): (usize, usize),
        text: ServicesPart,
    ) -> Result<(), String> {
        if let Some(whole) = self.arriving[0].take_text(set, (part, parts), text)? {
            let asked = serde_json::from_str(&whole).map_err(|why| format!("a verification: {why}"))?;
            self.asked.borrow_mut().insert(set.to_owned(), asked);
        }
        Ok(())
    }

    /// Takes a part of a verdict.
    ///
    /// # Errors
    ///
    /// It is out of order, or all parts together are none.
    pub fn take_verdict(
        &self,
        set: &str,
        (part, parts): (usize, usize),
        text: ServicesPart,
    ) -> Result<(), String> {
        if let Some(whole) = self.arriving[1].take_text(set, (part, parts), text)? {
            let verdict = serde_json::from_str(&whole).map_err(|why| format!("a verdict: {why}"))?;
            self.verdicts.borrow_mut().insert(set.to_owned(), verdict);
        }
        Ok(())
    }

    /// Gives what came to the sets that this site has with the other one.
    pub fn keep(&self, link: &Link, peer: SiteId) {
        if self.asked.borrow().is_empty() && self.verdicts.borrow().is_empty() {
            return;
        }
        let memory = link.access.sets();
        for (set, _) in sets_with(link, peer) {
            if let Some(asked) = self.asked.borrow_mut().remove(&set) {
                memory.note_asked(&set, asked);
            }
            if let Some(verdict) = self.verdicts.borrow_mut().remove(&set) {
                memory.note_verdict(&set, verdict);
            }
        }
    }
}
