//! Another mode for a group that lives: its primary goes over to it, and the other site follows.
//!
//! Invariants:
//!
//! 1. The mode at the primary counts. The other site records it once it hears of it, and goes by what it has recorded if it
//!    takes over before.
//! 2. Hosts are answered by a mode only while it is recorded, together with whether they were answered what the peer lacks.

use super::{
    group_orders::GroupOrder, group_view::DrRole, hosted_group::HostedGroup, mode::DrMode,
    pool_groups::PoolDrGroups,
};
use array::format::GroupId;
use replication::{group_record::GroupSettings, primary::PrimaryGroup, session::ReplicationMode};
use report::Refusal;

impl HostedGroup {
    /// Goes over to another mode. No channel runs.
    pub(super) async fn change_mode(
        &self,
        group: &PrimaryGroup,
        mode: ReplicationMode,
    ) -> Result<(), Refusal> {
        let before = self.settings();
        check_mode(&before, mode)?;
        let is_failsafe = matches!(mode, ReplicationMode::Sync { is_failsafe: true, .. });
        if is_failsafe && self.member.suspension().is_some() {
            let problem = format!("{} is suspended, and a failsafe group refuses writes then", before.name);
            return Err(Refusal::new(problem, "resume it first"));
        }
        if before.mode != mode {
            group.change_mode(mode).await.map_err(|error| self.refusal(&error))?;
            self.note_mode(mode, "");
        }
        Ok(())
    }

    /// Follows the primary, which has another mode. Of a secondary alone: the mode of a primary is its own.
    async fn follow_mode(&self, mode: ReplicationMode) -> Result<(), Refusal> {
        let before = self.settings();
        check_mode(&before, mode)?;
        if before.mode != mode && self.member.follow_mode(mode).await.map_err(|error| self.refusal(&error))? {
            self.note_mode(mode, ", as its primary does");
        }
        Ok(())
    }

    /// The recorded mode is another one.
    fn note_mode(&self, mode: ReplicationMode, why: &str) {
        let before = self.settings();
        self.set_settings(GroupSettings { mode, ..(*before).clone() });
        let (from, to) = (DrMode::of(before.mode), DrMode::of(mode));
        self.occurred("dr_mode_changed", &format!("goes over from {from} to {to}{why}"));
    }
}

/// Refuses a mode that a group cannot have.
fn check_mode(settings: &GroupSettings, mode: ReplicationMode) -> Result<(), Refusal> {
    let name = &settings.name;
    let is_periodic = matches!(mode, ReplicationMode::Periodic { .. });
    let goes_on_alone = matches!(mode, ReplicationMode::Sync { is_failsafe: false, .. });
    if settings.joint.is_some() && is_periodic {
        return Err(Refusal::new(
            format!("{name} has volumes in several pools: such a group is not periodic today"),
            "say ⟨mode⟩ sync or async; or make a group for each pool",
        ));
    }
    if settings.auto.is_some() && !goes_on_alone {
        return Err(Refusal::new(
            format!("{name} fails over without a person: such a group is in sync, without ⟨failsafe⟩"),
            "leave it so; or remove it at both sites, and make it again without a witness",
        ));
    }
    let changed = GroupSettings { mode, ..settings.clone() };
    assert_eq!(changed.contradiction(), None, "these are the rules");
    Ok(())
}

impl PoolDrGroups {
    /// Gives a group of which this side is primary another mode; the other side hears of it when it is connected.
    ///
    /// # Errors
    ///
    /// It is secondary here, cannot have that mode, or the pool cannot record it.
    pub async fn change_mode(&self, group: GroupId, mode: ReplicationMode) -> Result<(), Refusal> {
        // Before the channel is cut for it.
        check_mode(&self.find(group)?.settings(), mode)?;
        self.ask(group, |answer| GroupOrder::ChangeMode(mode, answer)).await?
    }

    /// The same, by the group's name.
    pub async fn change_mode_of(&self, name: &str, mode: ReplicationMode) -> Result<(), Refusal> {
        let missing = || Refusal::new(format!("there is no DR group {name:?}"), "");
        let group = self.group_called(name).ok_or_else(missing)?;
        self.change_mode(group, mode).await
    }

    /// Follows the mode of the other side's primary.
    ///
    /// # Errors
    ///
    /// The group cannot have that mode, or the pool cannot record it.
    pub(super) async fn follow_mode(&self, group: GroupId, mode: ReplicationMode) -> Result<(), Refusal> {
        let hosted = self.find(group)?;
        match hosted.view().role {
            DrRole::Secondary => hosted.follow_mode(mode).await,
            DrRole::Primary => Ok(()),
        }
    }
}
