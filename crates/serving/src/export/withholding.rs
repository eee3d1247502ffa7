//! A volume rolled back while clients use it: its export is withheld from each of them until it has let go of what it
//! cached, or somebody readmits it. The pool keeps their names, so a server that is started again withholds it, too.
//!
//! Invariants:
//!
//! 1. From before the rollback on, no command of a client that was connected is executed.
//! 2. A rollback that failed withholds from nobody from whom it was not withheld before.
//! 3. The pool has the clients of 1 with the rollback, and for as long as the export is withheld from them here. It may
//!    have one a little longer.

use super::{exported_volume::ExportedVolume, kept_clients::KeptClients};
use array::{
    error::Error,
    format::{VolumeId, row::WithheldClient},
    pool::{Pool, RollbackGoal},
};
use iscsi::scsi::{reservations::Nexus, unit::LogicalUnit};
use nbd::ExportGate;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
};
use tokio::sync::{Mutex, MutexGuard};
use world::World;

/// The ways in which an export is served.
#[derive(Default)]
pub struct ServedAs {
    served: Rc<ServedClients>,
    /// Of a volume that is written.
    kept: Option<KeptClients>,
    /// Rollbacks and readmissions come one at a time.
    changing: Mutex<()>,
}

/// The clients that use an export.
#[derive(Default)]
pub(super) struct ServedClients {
    /// Of all NBD endpoints.
    gate: Rc<ExportGate>,
    has_nbd: Cell<bool>,
    /// Its units of iSCSI targets.
    units: RefCell<Vec<Rc<LogicalUnit>>>,
}

/// The result of a forced rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedRollback {
    /// Name of the volume with the state of before.
    pub left_name: String,
    pub withheld: WithheldClients,
}

/// The clients of an export while its contents are about to change.
pub struct ClientsKeptAway<'a> {
    of: &'a ServedAs,
    was_withheld: bool,
    /// Units, with what was withheld of each.
    withheld: Vec<(Rc<LogicalUnit>, Vec<String>)>,
    _one_at_a_time: MutexGuard<'a, ()>,
}

/// Clients from which an export is withheld.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithheldClients {
    /// iSCSI names of initiators.
    pub initiators: Vec<String>,
    /// All NBD clients: they have no names.
    pub nbd: bool,
}

impl ServedClients {
    fn units(&self) -> Vec<Rc<LogicalUnit>> {
        self.units.borrow().clone()
    }

    fn clients(&self) -> Vec<WithheldClient> {
        let ports = self.units().iter().flat_map(|unit| unit.withheld_nexuses()).collect::<Vec<_>>();
        let ports = ports.into_iter().map(|Nexus(port)| WithheldClient::InitiatorPort(port));
        ports.chain(self.gate.is_withheld().then_some(WithheldClient::AllNbd)).collect()
    }

    /// The clients that may have cached something: connected, or about to come back.
    fn known_clients(&self) -> Vec<WithheldClient> {
        let ports: BTreeSet<Nexus> = self.units().iter().flat_map(|unit| unit.known_nexuses()).collect();
        let ports = ports.into_iter().map(|Nexus(port)| WithheldClient::InitiatorPort(port));
        let has_nbd = self.gate.has_clients() || self.gate.is_withheld();
        ports.chain(has_nbd.then_some(WithheldClient::AllNbd)).collect()
    }

    /// True if a client from which the export was withheld has let go of it, or was readmitted. One that cannot come, as
    /// its protocol is not served, has not.
    pub fn has_let_go(&self, client: &WithheldClient) -> bool {
        match client {
            WithheldClient::AllNbd => !self.gate.is_withheld(),
            WithheldClient::InitiatorPort(port) => {
                let (units, nexus) = (self.units.borrow(), Nexus(port.clone()));
                !units.is_empty() && !units.iter().any(|unit| unit.must_log_out(&nexus))
            }
        }
    }
}

impl ServedAs {
    /// Those of a volume, withheld from the clients that its pool names.
    pub(super) fn of_volume(world: &World, volume: &Rc<ExportedVolume>, id: VolumeId) -> Self {
        let is_nbd_withheld = KeptClients::named(volume, id).contains(&WithheldClient::AllNbd);
        let gate = if is_nbd_withheld { ExportGate::withheld() } else { ExportGate::default() };
        let served = Rc::new(ServedClients { gate: Rc::new(gate), ..ServedClients::default() });
        let kept = KeptClients::keep(world, (volume, id), &served);
        Self { served, kept: Some(kept), changing: Mutex::default() }
    }

    /// Adds a unit of an iSCSI target.
    pub fn add_unit(&self, unit: &Rc<LogicalUnit>) {
        if let Some(kept) = &self.kept {
            let port = |client| match client {
                WithheldClient::InitiatorPort(port) => Some(Nexus(port)),
                WithheldClient::AllNbd => None,
            };
            unit.withhold_from(kept.clients().into_iter().filter_map(port));
            unit.notify_logouts(&kept.readmissions);
        }
        self.served.units.borrow_mut().push(Rc::clone(unit));
    }

    /// The gate of an NBD endpoint.
    pub(super) fn add_nbd(&self) -> Rc<ExportGate> {
        self.served.has_nbd.set(true);
        Rc::clone(&self.served.gate)
    }

    /// Ends the connections of NBD clients with their next request.
    pub(super) fn end_nbd_clients(&self) {
        self.served.gate.end_clients();
    }

    /// Withholds the export from all who use it, waits for their commands, and rolls its volume back. `left` is the
    /// identity of the volume with the state of before.
    ///
    /// # Errors
    ///
    /// As [`Pool::force_rollback`]. Nothing has changed then.
    pub async fn roll_back(
        &self,
        pool: &Pool,
        (volume, goal): (&str, RollbackGoal<'_>),
        left: VolumeId,
    ) -> Result<ForcedRollback, Error> {
        let away = self.keep_away().await;
        match pool.force_rollback(volume, goal, left, &away.clients()).await {
            Ok(left_name) => Ok(ForcedRollback { left_name, withheld: away.contents_changed() }),
            Err(error) => {
                away.take_back();
                Err(error)
            }
        }
    }

    /// Withholds the export from all who use it, and waits for their commands: its contents are about to change.
    pub async fn keep_away(&self) -> ClientsKeptAway<'_> {
        let one_at_a_time = self.changing.lock().await;
        let ServedClients { gate, has_nbd, .. } = &*self.served;
        let was_withheld = gate.is_withheld();
        if has_nbd.get() {
            gate.withhold().await;
        }
        let withheld = Vec::new();
        let mut away = ClientsKeptAway { of: self, was_withheld, withheld, _one_at_a_time: one_at_a_time };
        for unit in self.served.units() {
            unit.keep_all_out(true);
            away.withheld.push((Rc::clone(&unit), Vec::new()));
            let initiators = unit.withhold().await;
            away.withheld.last_mut().expect("it was added").1 = initiators;
        }
        away
    }

    /// Names of the initiators that are logged in to its units, sorted.
    pub fn initiators(&self) -> Vec<String> {
        let mut initiators: Vec<String> =
            self.served.units().iter().flat_map(|unit| unit.initiators()).collect();
        initiators.sort();
        initiators.dedup();
        initiators
    }

    /// The clients that may have cached something of the export, in order. NBD clients are one, as they have no names: they
    /// count while one is connected, and after one's connection broke.
    pub fn known_clients(&self) -> Vec<WithheldClient> {
        self.served.known_clients()
    }

    /// Clients that are refused at present.
    pub fn withheld_from(&self) -> WithheldClients {
        let units = self.served.units();
        let mut initiators: Vec<String> = units.iter().flat_map(|unit| unit.withheld_from()).collect();
        initiators.sort();
        initiators.dedup();
        WithheldClients { initiators, nbd: self.served.gate.is_withheld() }
    }

    /// Readmits an initiator, whatever it has cached. False if the export is not withheld from it.
    ///
    /// # Errors
    ///
    /// The pool cannot write; the export is still withheld then.
    pub async fn readmit(&self, initiator: &str) -> Result<bool, Error> {
        let _one_at_a_time = self.changing.lock().await;
        let is_kept = match &self.kept {
            Some(kept) => kept.forget(|client| is_of(client, initiator)).await?,
            None => false,
        };
        // Of each unit.
        let units = self.served.units().iter().filter(|unit| unit.readmit(initiator)).count();
        Ok(is_kept || units > 0)
    }

    /// Readmits NBD clients, over new connections.
    ///
    /// # Errors
    ///
    /// The pool cannot write; the export is still withheld then.
    pub async fn readmit_nbd(&self) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().await;
        if let Some(kept) = &self.kept {
            kept.forget(|client| *client == WithheldClient::AllNbd).await?;
        }
        self.served.gate.readmit();
        Ok(())
    }

    /// Lets the pool forget the clients that have let go: to be called before the pool is closed.
    pub(super) async fn settle(&self) {
        if let Some(kept) = &self.kept {
            kept.settle(&self.served).await;
        }
    }
}

impl Drop for ClientsKeptAway<'_> {
    fn drop(&mut self) {
        self.withheld.iter().for_each(|(unit, _)| unit.keep_all_out(false));
    }
}

impl ClientsKeptAway<'_> {
    /// All clients that do not get the export now.
    pub fn clients(&self) -> Vec<WithheldClient> {
        self.of.served.clients()
    }

    /// The contents are others now. Returns the clients that have to let go of what they cached.
    pub fn contents_changed(self) -> WithheldClients {
        self.withheld.iter().for_each(|(unit, _)| unit.contents_changed());
        // One may have logged out meanwhile.
        self.of.kept.iter().for_each(|kept| kept.readmissions.notify_one());
        self.of.withheld_from()
    }

    /// The contents stay: clients get it again from which it was not withheld before.
    pub fn take_back(self) {
        if !self.was_withheld {
            self.of.served.gate.readmit();
        }
        self.withheld.iter().for_each(|(unit, initiators)| unit.take_back_withholding(initiators));
    }
}

/// True if the client is a port of the initiator.
fn is_of(client: &WithheldClient, initiator: &str) -> bool {
    match client {
        WithheldClient::AllNbd => false,
        WithheldClient::InitiatorPort(port) => Nexus(port.clone()).initiator() == initiator,
    }
}
