//! The clients of a pool's DR groups: those that the other sites are told of, and those from which volumes are withheld.
//!
//! Invariants:
//!
//! 1. A group whose volumes were closed to hosts begins a new reign when it serves again: its clients of before are not known
//!    any more.

use super::{
    group_clients::{GroupClients, ReignId},
    group_view::WithheldHost,
    pool_groups::PoolDrGroups,
};
use crate::pool_thread::ServedPool;
use array::format::{GroupId, VolumeId, WallNanoseconds, row::WithheldClient};
use iscsi::scsi::reservations::Nexus;
use serving::export::IdentityOrigin;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// Interval of looking who uses the groups.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The clients of the groups that serve, as the last look found them.
#[derive(Default)]
pub(super) struct ClientState(RefCell<BTreeMap<GroupId, Arc<GroupClients>>>);

impl PoolDrGroups {
    /// Looks from now on who uses the groups, and has changes published.
    pub(super) fn watch_clients(self: &Rc<Self>, served: &Rc<ServedPool>) {
        let (own, served, world) = (Rc::downgrade(self), Rc::downgrade(served), self.world.clone());
        self.world.spawn("clients of DR groups", async move {
            while let (Some(groups), Some(served)) = (own.upgrade(), served.upgrade()) {
                if groups.look_at_clients(&served) {
                    served.show_changes();
                }
                drop((groups, served));
                world.sleep(LOOK_EVERY).await;
            }
        });
    }

    /// True if something has changed.
    fn look_at_clients(&self, served: &ServedPool) -> bool {
        let (before, mut now) = (self.clients.0.borrow().clone(), BTreeMap::new());
        for (group, hosted) in self.groups.borrow().iter() {
            let volumes = hosted.volumes();
            if !hosted.serves() || volumes.iter().any(|&volume| self.is_shut(volume)) {
                continue;
            }
            let clients = volumes.into_iter().map(|volume| (volume, clients_of(served, volume)));
            let known = before.get(group);
            let clients = GroupClients {
                reign: known.map_or_else(|| self.new_reign(), |known| known.reign),
                clients: clients.filter(|(_, clients)| !clients.is_empty()).collect(),
            };
            let same = known.filter(|known| ***known == clients).cloned();
            now.insert(*group, same.unwrap_or_else(|| Arc::new(clients)));
        }
        let is_other = before != now;
        *self.clients.0.borrow_mut() = now;
        is_other
    }

    fn new_reign(&self) -> ReignId {
        let mut reign = [0; 16];
        self.world.fill_secret(&mut reign);
        ReignId(reign)
    }

    /// The clients of a group that serves; `None` of another.
    pub(super) fn clients_of_group(&self, group: GroupId) -> Option<Arc<GroupClients>> {
        self.clients.0.borrow().get(&group).cloned()
    }

    /// The hosts from which volumes are withheld, by name; NBD clients, which have none, come first.
    pub(super) fn withheld_hosts(&self, volumes: &[VolumeId]) -> Vec<WithheldHost> {
        let mut hosts: BTreeMap<Option<String>, (BTreeSet<VolumeId>, WallNanoseconds)> = BTreeMap::new();
        for &volume in volumes {
            // One that was deleted is withheld from nobody.
            for row in self.pool.withheld_from(volume).unwrap_or_default() {
                let initiator = match row.client {
                    WithheldClient::AllNbd => None,
                    WithheldClient::InitiatorPort(port) => Some(Nexus(port).initiator().to_owned()),
                };
                let (of_host, since) = hosts.entry(initiator).or_insert((BTreeSet::new(), row.since));
                of_host.insert(volume);
                *since = row.since.max(*since);
            }
        }
        let hosts = hosts.into_iter();
        hosts
            .map(|(initiator, (volumes, WallNanoseconds(since)))| WithheldHost {
                initiator,
                volumes: volumes.into_iter().collect(),
                since_unix_s: (since / 1_000_000_000) as i64,
            })
            .collect()
    }
}

/// The clients that may have cached something of a volume.
fn clients_of(served: &ServedPool, volume: VolumeId) -> BTreeSet<WithheldClient> {
    let device = served.exports.served(&IdentityOrigin::Volume(volume));
    device.map(|device| device.served.known_clients().into_iter().collect()).unwrap_or_default()
}
