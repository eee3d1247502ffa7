//! Task management functions.

use super::{
    connection::{Connection, unit_of},
    pending_command::PendingCommand,
};
use crate::{
    scsi::{
        reservations::Nexus,
        sense::AdditionalSense,
        unit::{AccessibleUnit, LogicalUnit},
    },
    target::send_queue::StatSn,
    wire::header::{FINAL, PduHeader, TaskManagement, TaskManagementResponse},
};
use std::{ops::ControlFlow, rc::Rc};

/// Function codes (RFC 7143, 11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;

impl Connection {
    /// Executes a task management function (RFC 7143, 11.5). An aborted command still completes; its response
    /// is suppressed.
    pub(super) fn manage(self: &Rc<Self>, request: &TaskManagement) -> ControlFlow<()> {
        const DONE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_UNIT: u8 = 2;
        const UNSUPPORTED: u8 = 5;
        let number = unit_of(&request.lun);
        let units = self.units();
        let unit = units.get(&number).map(|reached| &reached.unit);
        let function = request.flags & 0x7f;
        let response = match (function, unit) {
            (ABORT_TASK, _) => match self.abort(|itt, _| itt == request.referenced_task_tag.get()) {
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
                for AccessibleUnit { unit, .. } in units.values() {
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
            itt: request.itt,
            ..TaskManagementResponse::empty()
        };
        self.send_queue.send(&response, StatSn::Advance, &[]);
        if function == COLD_RESET {
            self.targets.sessions.end_all_of(&self.target_name);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Aborts all tasks of a unit. Other initiators that had any get COMMANDS CLEARED BY ANOTHER INITIATOR.
    fn clear(self: &Rc<Self>, unit: &Rc<LogicalUnit>) {
        for connection in self.targets.sessions.connections() {
            let aborted = connection.abort(|_, number| connection.knows_as(unit, number));
            if aborted > 0 && !Rc::ptr_eq(&connection, self) {
                unit.raise_attention(&connection.nexus, AdditionalSense::COMMANDS_CLEARED);
            }
        }
    }

    /// PREEMPT AND ABORT: aborts the tasks of preempted initiators. The unit raises their unit attention.
    pub(super) fn abort_preempted(&self, unit: &Rc<LogicalUnit>, preempted: &[Nexus]) {
        for connection in self.targets.sessions.connections() {
            if preempted.contains(&connection.nexus) {
                connection.abort(|_, number| connection.knows_as(unit, number));
            }
        }
    }

    /// True if `number` is this unit's LUN on this connection.
    fn knows_as(&self, unit: &Rc<LogicalUnit>, number: u64) -> bool {
        self.units().get(&number).is_some_and(|reached| Rc::ptr_eq(&reached.unit, unit))
    }

    /// Aborts the tasks selected by ITT and LUN; returns how many.
    fn abort(self: &Rc<Self>, is_meant: impl Fn(u32, u64) -> bool) -> usize {
        let ended: Vec<PendingCommand> = self
            .pending
            .borrow_mut()
            .extract_if(.., |itt, pending| is_meant(*itt, unit_of(&pending.command.lun)))
            .map(|(_, pending)| pending)
            .collect();
        let aborted = {
            let executing = self.executing.borrow();
            let meant = executing.iter().filter(|(itt, executing)| is_meant(**itt, executing.unit));
            meant.map(|(_, executing)| executing.is_aborted.set(true)).count()
        };
        let held =
            ended.iter().filter(|pending| pending.has_reservation).map(PendingCommand::bytes_max).sum();
        if held > 0 {
            self.release_room(held);
        }
        ended.len() + aborted
    }
}
