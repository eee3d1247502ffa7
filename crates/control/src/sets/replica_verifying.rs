//! Verifications by the site that follows a set: at the site that keeps it, what is wanted and the verdict that came; at the
//! other one, what is asked and the verdict of its verifier.

use super::{
    keeper::SetFlow,
    served_set::{SetOrder, SetOrderAnswer, SetReplication, SetRequest, SetRole},
};
use crate::{
    dr::{set_memory::LinkStanding, site_message::VERIFICATIONS_VERSION},
    planted::{self, FollowBug},
};
use protect::{
    catalogue::{CatalogueFileError, RebuiltSet},
    set_keeper::{
        FINDINGS_MAX, PersonOrder, ReplicaSite, ReplicaVerdict, ReplicaVerification, SetKeeper, SetView,
        VerificationResult, VerificationVerdict, point_identities,
    },
};
use report::calendar::utc_time;
use std::sync::Arc;

/// Verifications of a flow with the other site.
#[derive(Default)]
pub(super) struct ReplicaVerifying {
    /// The site as the keeper knows it.
    known: Option<ReplicaSite>,
    /// The verification that this site, which keeps the set, wants from the other one.
    wanted: Option<Arc<ReplicaVerification>>,
    /// The verification that this site, which follows, can do now, and the set as it was listed with it.
    at_hand: Option<(Arc<ReplicaVerification>, SetView)>,
    /// The last verdict of this site.
    verdict: Option<Arc<ReplicaVerdict>>,
}

impl SetFlow {
    /// The site that verifies; `None` if the set is verified here, or there is no other site.
    fn replica_site(&self) -> Option<ReplicaSite> {
        let is_wanted = |flow: &Self| {
            flow.settings.borrow().verification.as_ref().is_some_and(|policy| policy.is_at_replica())
        };
        let replication = self.replication().filter(|_| is_wanted(self))?;
        let site = *replication.peers.first()?;
        let name = replication.sites.clone();
        let away = match self.around.memory.link_to(site) {
            None => {
                Some(format!("site {name}, which verifies, is not connected since this server was started"))
            }
            Some(LinkStanding::Lost(since)) => {
                let since = utc_time(since.seconds);
                Some(format!("site {name}, which verifies, is not connected since {since}"))
            }
            Some(LinkStanding::Connected(version)) if version < VERIFICATIONS_VERSION => Some(format!(
                "site {name} cannot verify: its program speaks version {version} of the link, and this needs \
                 {VERIFICATIONS_VERSION}; use a newer one there"
            )),
            Some(LinkStanding::Connected(_)) if replication.told.is_none() => Some(format!(
                "site {name}, which verifies, has said nothing of the set; is it in its site file?"
            )),
            Some(LinkStanding::Connected(_)) => None,
        };
        let here = replication.told.iter().flat_map(|told| told.here.iter().copied()).collect();
        Some(ReplicaSite { name, here, away })
    }

    /// True if the keeper does not know yet how the other site is, or what it found.
    pub(super) fn has_news_of_replica(&self) -> bool {
        self.around.memory.has_verdict(&self.name) || self.replica_site() != self.verifying.known
    }

    /// Tells the keeper how the other site is, and what it found.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written.
    pub(super) fn hear_of_replica(&mut self, keeper: &mut SetKeeper) -> Result<(), CatalogueFileError> {
        self.verifying.known = self.replica_site();
        keeper.set_replica(self.verifying.known.clone());
        let Some(verdict) = self.around.memory.take_verdict(&self.name) else { return Ok(()) };
        let wanted = self.verifying.wanted.take_if(|wanted| wanted.request == verdict.request);
        let (Some(wanted), Some(site)) = (wanted, self.replication().map(|replication| replication.sites))
        else {
            return Ok(());
        };
        keeper.note_replica_verdict(&site, &wanted, &verdict)
    }

    /// The verification that the other site is to carry out. One that it may have begun stays until it is answered, also while the
    /// link is lost and when a newer backup is due: a verification may take longer than the time between two backups.
    pub(super) fn wanted_verification(&mut self, keeper: &SetKeeper) -> Option<Arc<ReplicaVerification>> {
        let verifying = &mut self.verifying;
        if verifying.known.as_ref().is_none_or(|site| site.away.is_none()) {
            let before = verifying.wanted.take().filter(|before| keeper.still_wants(before));
            verifying.wanted = before.or_else(|| keeper.replica_verification_due().map(Arc::new));
        }
        verifying.wanted.clone()
    }

    /// At the site that follows: shows what is to be verified here, if all its points are here, or the verdict.
    pub(super) fn show_asked(
        &mut self,
        found: Option<&RebuiltSet>,
        replication: &mut SetReplication,
        mut view: SetView,
    ) -> SetView {
        // A pool that is silent for a moment ends no verification.
        let at_hand = self.verifying.at_hand.take();
        let Some(asked) = replication.asked.clone() else { return view };
        let has_answered = |verdict: &&Arc<ReplicaVerdict>| verdict.request == asked.request;
        if let Some(verdict) = self.verifying.verdict.as_ref().filter(has_answered) {
            replication.verdict = Some(Arc::clone(verdict));
            return view;
        }
        let of_catalogue = found.filter(|found| found.id == asked.id);
        let backup =
            of_catalogue.and_then(|found| found.backups.iter().find(|one| one.backup == asked.backup));
        if backup.is_some_and(|backup| point_identities(&backup.points) == asked.points) {
            view.verification_due = Some(asked.backup);
            self.verifying.at_hand = Some((asked, view.clone()));
        } else if let Some((_, before)) = at_hand.filter(|(known, _)| found.is_none() && *known == asked) {
            self.verifying.at_hand = Some((asked, before));
        }
        view
    }

    /// Takes the result of a verification that the other site wants. Returns other requests.
    pub(super) fn take_result(&mut self, request: SetRequest) -> Option<SetRequest> {
        let is_following = self.stands_aside().is_some_and(|aside| aside.role == SetRole::Follows);
        let SetRequest::Order {
            order: SetOrder::Follow { number, order: PersonOrder::NoteVerification(result) },
            by,
            answer,
        } = request
        else {
            return Some(request);
        };
        let at_hand = self
            .verifying
            .at_hand
            .take_if(|(asked, _)| is_following && asked.backup == number && is_about(asked, &result));
        let Some((asked, view)) = at_hand else {
            let order = SetOrder::Follow { number, order: PersonOrder::NoteVerification(result) };
            return Some(SetRequest::Order { order, by, answer });
        };
        let VerificationResult { level, version, verdict, findings, points } = result;
        let (request, id) = (asked.request.clone(), asked.id.clone());
        let points =
            if verdict == VerificationVerdict::Unfinished { asked.points.clone() } else { sorted(points) };
        let findings = findings.into_iter().take(FINDINGS_MAX).collect();
        let backup = number;
        self.verifying.verdict = Some(Arc::new(ReplicaVerdict {
            request,
            id,
            backup,
            points,
            level,
            version,
            by,
            verdict,
            findings,
        }));
        let text =
            format!("set {}: backup {number} was verified here for the site that keeps the set", self.name);
        self.around.notices.note(text);
        // The asking thread may have given up.
        let _ = answer.send(Ok(SetOrderAnswer { number, view }));
        None
    }
}

/// True if a verifier looked at the points that the other site asked for, at that level.
fn is_about(asked: &ReplicaVerification, result: &VerificationResult) -> bool {
    let points = sorted(result.points.clone());
    let has_ended = result.verdict != VerificationVerdict::Unfinished;
    let are_same = points == asked.points || planted::is_in_following(FollowBug::VerdictOfAnotherClone);
    result.level == asked.level && (are_same || !has_ended)
}

fn sorted(mut points: Vec<String>) -> Vec<String> {
    points.sort();
    points.dedup();
    points
}
