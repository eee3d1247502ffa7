//! Task management: tasks that are to end.

use super::{
    connection::{Connection, Going, unit_of},
    tasks::Coming,
};
use crate::{
    scsi::{
        reservations::Nexus,
        sense::AdditionalSense,
        unit::{Reachable, Unit},
    },
    target::sending::StatusNumber,
    wire::pdu::{FINAL, Header, TaskManagement, TaskManagementResponse},
};
use std::rc::Rc;

/// Functions (RFC 7143, 11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;

impl Connection {
    /// Task management (RFC 7143, 11.5): what is aborted is done, and not answered.
    pub(super) fn manage(self: &Rc<Self>, request: &TaskManagement) -> Going {
        const DONE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_UNIT: u8 = 2;
        const UNSUPPORTED: u8 = 5;
        let number = unit_of(&request.lun);
        let unit = self.units.get(&number).map(|reached| &reached.unit);
        let function = request.flags & 0x7f;
        let response = match (function, unit) {
            (ABORT_TASK, _) => match self.abort(|task, _| task == request.referenced_task.get()) {
                0 => NO_TASK,
                _ => DONE,
            },
            (ABORT_TASK_SET | CLEAR_TASK_SET | UNIT_RESET, None) => NO_UNIT,
            (ABORT_TASK_SET, Some(_)) => {
                self.abort(|_, unit| unit == number);
                DONE
            }
            (CLEAR_TASK_SET, Some(unit)) => {
                self.clear(unit);
                DONE
            }
            (UNIT_RESET, Some(unit)) => {
                self.clear(unit);
                unit.reset(None);
                DONE
            }
            (WARM_RESET | COLD_RESET, _) => {
                for Reachable { unit, .. } in self.units.values() {
                    self.clear(unit);
                    unit.reset(None);
                }
                DONE
            }
            _ => UNSUPPORTED,
        };
        let response = TaskManagementResponse {
            flags: FINAL,
            response,
            task: request.task,
            ..TaskManagementResponse::empty()
        };
        self.sending.send(&response, StatusNumber::Counts, &[]);
        if function == COLD_RESET {
            self.targets.sessions.end_all_of(&self.target_name);
            return Going::Out;
        }
        Going::On
    }

    /// Aborts all tasks of a unit, whoever began them. Others hear of it, if they had any.
    fn clear(self: &Rc<Self>, unit: &Rc<Unit>) {
        for connection in self.targets.sessions.connections() {
            let aborted = connection.abort(|_, number| connection.knows_as(unit, number));
            if aborted > 0 && !Rc::ptr_eq(&connection, self) {
                unit.tell(&connection.nexus, AdditionalSense::COMMANDS_CLEARED);
            }
        }
    }

    /// Aborts all tasks at a unit of those who were preempted there (PREEMPT AND ABORT); that they were, the unit tells them.
    pub(super) fn abort_preempted(&self, unit: &Rc<Unit>, preempted: &[Nexus]) {
        for connection in self.targets.sessions.connections() {
            if preempted.contains(&connection.nexus) {
                connection.abort(|_, number| connection.knows_as(unit, number));
            }
        }
    }

    /// Whether the unit has that number here.
    fn knows_as(&self, unit: &Rc<Unit>, number: u64) -> bool {
        self.units.get(&number).is_some_and(|reached| Rc::ptr_eq(&reached.unit, unit))
    }

    /// Aborts the tasks that are meant; how many there were.
    fn abort(self: &Rc<Self>, is_meant: impl Fn(u32, u64) -> bool) -> usize {
        let ended: Vec<Coming> = self
            .coming
            .borrow_mut()
            .extract_if(.., |task, coming| is_meant(*task, unit_of(&coming.command.lun)))
            .map(|(_, coming)| coming)
            .collect();
        let aborted = {
            let executing = self.executing.borrow();
            let meant = executing.iter().filter(|(task, executing)| is_meant(**task, executing.unit));
            meant.map(|(_, executing)| executing.is_aborted.set(true)).count()
        };
        let held = ended.iter().filter(|coming| coming.has_room).map(Coming::holds_bytes_max).sum();
        if held > 0 {
            self.gives_room(held);
        }
        ended.len() + aborted
    }
}
