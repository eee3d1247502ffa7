//! A planned failover at the side that gives its right away, and what is said when that does not come to its end.

use super::hosted_group::HostedGroup;
use replication::primary::{HandOverError, PrimaryGroup};
use report::Refusal;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time for a periodic group to bring its peer what that lacks, before it is handed over.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(15);

impl HostedGroup {
    /// Takes the hosts away, and has the connection give the right to the peer; its end is the answer.
    pub(super) async fn begin_hand_over(
        &self,
        group: &PrimaryGroup,
        answer: oneshot::Sender<Result<(), Refusal>>,
    ) {
        *self.handing.borrow_mut() = Some(answer);
        if !group.is_together() && group.session().is_sync() {
            // Its hosts stay meanwhile.
            return self.refuse_hand_over(&HandOverError::NotTogether.to_string());
        }
        // Hosts of a periodic group write until it is close, and those of parts that are not in sync until they are together.
        let _streams = match group.catch_up(CAUGHT_UP_WITHIN).await {
            Ok(streams) => streams,
            Err(error) => return self.refuse_hand_over(&error.to_string()),
        };
        self.is_closing.set(true);
        self.hosts.refresh();
        if !self.hosts.end(&self.settings().volumes).await {
            return self.refuse_hand_over("its hosts did not let go in time");
        }
        // Commands of hosts that are gone may still be on their way.
        if let Err(error) = self.member.pool().between_writes(&self.settings().volumes, || ()).await {
            return self.refuse_hand_over(&error.to_string());
        }
        if let Err(error) = group.hand_over().await {
            self.refuse_hand_over(&error.to_string());
        }
    }

    /// This side goes on as primary.
    pub(super) fn refuse_hand_over(&self, problem: &str) {
        if self.is_closing.replace(false) {
            self.hosts.refresh();
        }
        let next = "hosts are served here as before; try again when 'spindle dr status' says streaming";
        let refusal = Refusal::new(format!("{}: {problem}", self.settings().name), next);
        self.handing.take().into_iter().for_each(|answer| drop(answer.send(Err(refusal.clone()))));
    }

    /// If both sites say so, a hand over was cut short.
    pub(super) fn secondary_already(&self) -> Refusal {
        let name = &self.settings().name;
        let next = match self.settings().joint {
            None => "ask the primary, or say ⟨unplanned⟩".to_owned(),
            Some(_) => format!(
                "if a part is primary at neither site, say 'spindle failover {name} --unplanned --accept-loss all' where the \
                 others are primary, as 'spindle dr status' shows; the site that gave the part away waited until the other \
                 one had everything"
            ),
        };
        Refusal::new(format!("{name} is secondary here already"), next)
    }

    pub(super) fn not_confirmed(&self, why: &str) -> Refusal {
        let name = &self.settings().name;
        Refusal::new(
            format!(
                "{name}: the line was lost while the other site took over ({why}): it may be primary, or nobody is; nothing is lost"
            ),
            format!(
                "look at 'spindle dr status' there, and say 'spindle failover {name} --unplanned --accept-loss all' there if it is secondary"
            ),
        )
    }
}
