//! A volume rolled back while clients use it: its export is withheld from each of them until it has let go of what it
//! cached, or somebody readmits it.
//!
//! Invariants:
//!
//! 1. From before the rollback on, no command of a client that was connected is executed.
//! 2. A rollback that failed withholds from nobody from whom it was not withheld before.

use array::{
    error::Error,
    format::VolumeId,
    pool::{Pool, RollbackGoal},
};
use iscsi::scsi::unit::LogicalUnit;
use nbd::ExportGate;
use std::{cell::RefCell, rc::Rc};

/// The ways in which an export is served.
#[derive(Default)]
pub struct ServedAs {
    /// Of all NBD endpoints.
    pub gate: Rc<ExportGate>,
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

/// Clients from which an export is withheld.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithheldClients {
    /// iSCSI names of initiators.
    pub initiators: Vec<String>,
    /// All NBD clients: they have no names.
    pub nbd: bool,
}

impl ServedAs {
    /// Adds a unit of an iSCSI target.
    pub fn add_unit(&self, unit: &Rc<LogicalUnit>) {
        self.units.borrow_mut().push(Rc::clone(unit));
    }

    fn units(&self) -> Vec<Rc<LogicalUnit>> {
        self.units.borrow().clone()
    }

    /// Withholds the export from all who use it, waits for their commands, and rolls its volume back. `left` is the
    /// identity of the volume with the state of before.
    ///
    /// # Errors
    ///
    /// As [`Pool::roll_back`]. Nothing has changed then.
    pub async fn roll_back(
        &self,
        pool: &Pool,
        (volume, goal): (&str, RollbackGoal<'_>),
        left: VolumeId,
    ) -> Result<ForcedRollback, Error> {
        let was_withheld = self.gate.is_withheld();
        self.gate.withhold().await;
        let mut withheld = Vec::new();
        for unit in self.units() {
            let initiators = unit.withhold().await;
            withheld.push((unit, initiators));
        }
        match pool.roll_back(volume, goal, left, true).await {
            Ok(left_name) => {
                withheld.iter().for_each(|(unit, _)| unit.contents_changed());
                Ok(ForcedRollback { left_name, withheld: self.withheld_from() })
            }
            Err(error) => {
                if !was_withheld {
                    self.gate.readmit();
                }
                for (unit, initiators) in withheld {
                    initiators.iter().for_each(|initiator| _ = unit.readmit(initiator));
                }
                Err(error)
            }
        }
    }

    pub fn withheld_from(&self) -> WithheldClients {
        let mut initiators: Vec<String> = self.units().iter().flat_map(|unit| unit.withheld_from()).collect();
        initiators.sort();
        initiators.dedup();
        WithheldClients { initiators, nbd: self.gate.is_withheld() }
    }

    /// Readmits an initiator, whatever it has cached. False if the export is not withheld from it.
    pub fn readmit(&self, initiator: &str) -> bool {
        // Of each unit.
        self.units().iter().filter(|unit| unit.readmit(initiator)).count() > 0
    }

    /// Readmits NBD clients, over new connections.
    pub fn readmit_nbd(&self) {
        self.gate.readmit();
    }
}
