//! The hosts that lose something that they use by a change of a row. It is asked on the pool's thread, before the change and again
//! in the same step that makes it.

use crate::{
    pool_thread::ServedPool,
    session_view::{SessionProtocol, SessionView},
};
use iscsi::target::access::AccessRight;
use plan::site::Site;
use serving::export::{EndedServices, WantedExports, name_of};
use std::{collections::BTreeSet, sync::Arc};

/// A version of the site before a change, and what the change takes away.
#[derive(Clone)]
pub(super) struct LostServices {
    pub before: Arc<Site>,
    /// By kind and name.
    pub gone: Arc<BTreeSet<(&'static str, String)>>,
}

impl LostServices {
    /// The sessions of a pool that lose something once it serves `wanted`, and what.
    pub fn sessions(&self, served: &ServedPool, wanted: &WantedExports) -> Vec<(SessionView, String)> {
        // Serving refuses volumes that are not there, or leaves them out with a warning.
        let other = served.exports.ended_by(&served.effective(wanted)).unwrap_or_default();
        let lost = |session: SessionView| {
            let what = self.lost_by(&session, wanted).or_else(|| changed_under(&session, &other))?;
            Some((session, what))
        };
        served.sessions().into_iter().filter_map(lost).collect()
    }

    fn is_gone(&self, kind: &'static str, name: &str) -> bool {
        self.gone.contains(&(kind, name.to_owned()))
    }

    /// The first thing that a session uses and would lose.
    fn lost_by(&self, session: &SessionView, wanted: &WantedExports) -> Option<String> {
        let before = &self.before;
        if session.protocol == SessionProtocol::Nbd {
            if self.is_gone("nbd export", &session.service) {
                return Some(format!("NBD export {}", session.service));
            }
            // All clients of a volume are disconnected with one of its exports.
            let volume =
                |name: &str| before.exports.iter().find(|export| export.name == name).map(|row| &row.volume);
            let own = volume(&session.service)?;
            let other =
                self.gone.iter().find(|(kind, name)| *kind == "nbd export" && volume(name) == Some(own));
            return other
                .map(|(_, other)| format!("NBD export {}, of one volume with {other},", session.service));
        }
        let target = before.targets.iter().find(|target| name_of(&target.name) == session.service)?;
        let initiator = session.initiator.as_deref().unwrap_or_default();
        session.units.iter().find_map(|&(number, may_write)| {
            let unit = format!("{}/{number}", target.name);
            let right = wanted.access.right(initiator, &session.service, number);
            let keeps_right = right.is_some_and(|right| !may_write || right == AccessRight::Write);
            let is_gone = self.is_gone("unit", &unit) || !keeps_right;
            is_gone.then(|| format!("unit {unit}"))
        })
    }
}

/// The first thing that a session uses and that is served anew, with what its volume was set to since.
fn changed_under(session: &SessionView, ended: &EndedServices) -> Option<String> {
    if session.protocol == SessionProtocol::Nbd {
        let is_ended = ended.exports.contains(&session.service);
        return is_ended.then(|| format!("NBD export {}", session.service));
    }
    let is_used = |(target, number): &&(String, u64)| {
        name_of(target) == session.service && session.units.iter().any(|(unit, _)| unit == number)
    };
    ended.units.iter().find(is_used).map(|(target, number)| format!("unit {target}/{number}"))
}
