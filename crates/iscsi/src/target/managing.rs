//! What concerns a session and not one command: which targets there are, and tasks that are to end.

use super::connection::{Connection, PROTOCOL_ERROR, unit_of};
use crate::{
    session::login::PORTAL_GROUP,
    target::sending::StatusNumber,
    wire::{
        frame::Frame,
        pdu::{FINAL, Header, NO_TAG, TaskManagement, TaskManagementResponse, Text, TextResponse},
        text,
    },
};

impl Connection {
    /// SendTargets, and nothing else.
    pub(super) fn answer_text(&self, frame: &Frame) {
        let request = Text::of(&frame.header);
        let Some(pairs) = text::read(&frame.data).filter(|_| request.flags & 0x40 == 0) else {
            return self.reject(&frame.header, PROTOCOL_ERROR);
        };
        let mut answers = Vec::new();
        for (key, value) in pairs {
            if key != "SendTargets" {
                answers.push((key, "NotUnderstood".to_owned()));
                continue;
            }
            let wanted = if value.is_empty() { self.target_name.clone() } else { value };
            let initiator = self.nexus.0.split(',').next().unwrap_or_default();
            let known = self.targets.all().iter().filter(|target| target.admits(initiator));
            for target in known.filter(|target| wanted == "All" || target.name.eq_ignore_ascii_case(&wanted))
            {
                answers.push(("TargetName".to_owned(), target.name.clone()));
                answers.push(("TargetAddress".to_owned(), format!("{},{PORTAL_GROUP}", self.portal)));
            }
        }
        let response = TextResponse {
            flags: FINAL,
            task: request.task,
            transfer: NO_TAG.into(),
            ..TextResponse::empty()
        };
        let mut data = text::write(answers);
        data.truncate(self.agreed.send_bytes_max as usize);
        self.sending.send(&response, StatusNumber::Counts, data);
    }

    /// Task management (RFC 7143, 11.5): what is aborted is done, and not answered.
    pub(super) fn manage(&self, request: &TaskManagement) {
        const DONE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_UNIT: u8 = 2;
        const UNSUPPORTED: u8 = 5;
        let number = unit_of(&request.lun);
        let unit = self.units.get(&number);
        let response = match (request.flags & 0x7f, unit) {
            (1, _) => match self.abort(|task, _| task == request.referenced_task.get()) {
                0 => NO_TASK,
                _ => DONE,
            },
            (2 | 4 | 5, None) => NO_UNIT,
            (2 | 4, Some(_)) => {
                self.abort(|_, unit| unit == number);
                DONE
            }
            (5, Some(unit)) => {
                self.abort(|_, unit| unit == number);
                unit.reset(None);
                DONE
            }
            (6 | 7, _) => {
                self.abort(|_, _| true);
                self.units.values().for_each(|unit| unit.reset(None));
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
        self.sending.send(&response, StatusNumber::Counts, Vec::new());
    }

    /// Aborts the tasks that are meant; how many there were.
    fn abort(&self, is_meant: impl Fn(u32, u64) -> bool) -> usize {
        let mut coming = self.coming.borrow_mut();
        let before = coming.len();
        coming.retain(|task, coming| !is_meant(*task, unit_of(&coming.command.lun)));
        let executing = self.executing.borrow();
        let meant = executing.iter().filter(|(task, executing)| is_meant(**task, executing.unit));
        let aborted = meant.map(|(_, executing)| executing.is_aborted.set(true)).count();
        before - coming.len() + aborted
    }
}
