//! Outstanding commands and what is to be sent for them. No I/O.
//!
//! Invariants:
//!
//! 1. The Initiator Task Tag of a command is unique among the outstanding ones.
//! 2. A command is outstanding until it is answered or expires; it is sent again over each new connection.
//! 3. No command is sent beyond MaxCmdSN, and no data beyond FirstBurstLength but what an R2T asks for.
//! 4. A flush claims no more than [`FlushTracker`] allows.
//! 5. Until a connection is open, only probe commands are sent.

use super::{
    commands::{Cdb, SenseCode},
    login::SessionTerms,
};
use crate::{
    scsi::commands::code,
    session::negotiation::SessionParameters,
    wire::{
        header::{DataOut, FINAL, IMMEDIATE, NO_TAG, NopIn, NopOut, PduHeader, ReadyToTransfer, ScsiCommand},
        pdu::HEADER_BYTES,
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::Duration,
};
use tokio::sync::oneshot;
use world::{
    Buffer, IoError, IoErrorKind, IoResult, Moment,
    flush_tracker::FlushTracker,
    payload::{Payload, bytes_in, part_of, scatter},
};

const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// The task attribute SIMPLE.
const ATTRIBUTE: u8 = 0x01;
/// Most unit attentions that one command is sent again for.
const ATTENTIONS_MAX: u32 = 32;
/// Delay before a command is sent again that met BUSY, TASK SET FULL, NOT READY or ABORTED COMMAND.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Effect of a successful command on the unit's write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEffect {
    None,
    /// The write is durable only after a flush.
    Write,
    /// Writes answered before are durable.
    Flush,
}

/// A command to send.
pub struct CommandRequest {
    pub cdb: Cdb,
    pub effect: CacheEffect,
    /// Receives the read data.
    pub into: Vec<Buffer>,
    /// Data to write.
    pub payload: Payload,
    /// A probe is sent before the connection is open; it may return less than the buffers hold, and is not
    /// sent again over another connection.
    pub is_probe: bool,
}

#[derive(Debug)]
pub struct CommandOutput {
    /// The buffers of the request, filled.
    pub into: Vec<Buffer>,
    /// Bytes filled.
    pub received: usize,
}

#[derive(Clone, Debug)]
pub struct CommandError {
    pub error: IoError,
    /// Sense of a CHECK CONDITION status.
    pub sense: Option<SenseCode>,
}

struct Task {
    command: CommandRequest,
    deadline: Moment,
    received: usize,
    /// Solicited bursts that are not sent yet.
    bursts: u32,
    attentions: u32,
    /// Writes answered before this command was added.
    answered_before: u64,
    tell: oneshot::Sender<Result<CommandOutput, CommandError>>,
}

/// The buffers of a read, and the place for the data of one Data-In.
pub struct ReadBuffers {
    pub buffers: Vec<Buffer>,
    pub index: usize,
    /// Within buffer `index`.
    pub range: Range<usize>,
}

/// Data that may be sent now.
struct DataBurst {
    itt: u32,
    ttt: u32,
    offset: usize,
    end: usize,
    number: u32,
}

pub struct OutgoingPdu {
    pub header: [u8; HEADER_BYTES],
    pub payload: Payload,
}

/// The outstanding commands of one logical unit.
pub struct Tasks {
    lun: [u8; 8],
    parameters: SessionParameters,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    is_open: bool,
    itt_next: u32,
    tasks: BTreeMap<u32, Task>,
    /// ITTs of commands to be sent, in order.
    to_send: VecDeque<u32>,
    /// ITTs of commands to be sent again later.
    delayed: Vec<(Moment, u32)>,
    bursts: VecDeque<DataBurst>,
    /// NOP-Outs to send.
    control_pdus: VecDeque<[u8; HEADER_BYTES]>,
    unflushed: FlushTracker,
}

fn room_of(into: &[Buffer]) -> usize {
    into.iter().map(|buffer| buffer.len()).sum()
}

/// Serial number comparison (RFC 1982).
fn is_behind(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

impl Tasks {
    pub fn new(lun: [u8; 8]) -> Self {
        Self {
            lun,
            parameters: SessionParameters::default(),
            cmd_sn: 0,
            max_cmd_sn: 0,
            exp_stat_sn: 0,
            is_open: false,
            itt_next: 1,
            tasks: BTreeMap::new(),
            to_send: VecDeque::new(),
            delayed: Vec::new(),
            bursts: VecDeque::new(),
            control_pdus: VecDeque::new(),
            unflushed: FlushTracker::default(),
        }
    }

    /// Begins a new connection: every command is sent again, except probes and flushes that can no longer
    /// keep their promise; those fail.
    pub fn begin_connection(&mut self, terms: &SessionTerms) {
        (self.parameters, self.exp_stat_sn) = (terms.parameters.clone(), terms.exp_stat_sn);
        (self.cmd_sn, self.max_cmd_sn) = (terms.cmd_sn, terms.max_cmd_sn);
        self.is_open = false;
        self.control_pdus.clear();
        self.bursts.clear();
        self.delayed.clear();
        let probes: Vec<u32> = self.itts(|task| task.command.is_probe);
        self.fail(&probes, &IoError::new(IoErrorKind::Disconnected, "the connection broke"));
        self.note_possible_loss();
        for task in self.tasks.values_mut() {
            (task.received, task.bursts) = (0, 0);
        }
        self.to_send = self.tasks.keys().copied().collect();
    }

    /// Drops all commands: the initiator was closed.
    pub fn close(&mut self) {
        self.tasks.clear();
    }

    /// Opens the connection for all commands.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// True if no command is outstanding.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds a command; it is sent as soon as the window allows.
    pub fn add(
        &mut self,
        command: CommandRequest,
        deadline: Moment,
    ) -> oneshot::Receiver<Result<CommandOutput, CommandError>> {
        let (tell, told) = oneshot::channel();
        while self.itt_next == NO_TAG || self.tasks.contains_key(&self.itt_next) {
            self.itt_next = self.itt_next.wrapping_add(1);
        }
        let itt = self.itt_next;
        self.itt_next = itt.wrapping_add(1);
        let answered_before = self.unflushed.answered();
        let task = Task { command, deadline, received: 0, bursts: 0, attentions: 0, answered_before, tell };
        if task.command.is_probe {
            self.to_send.push_front(itt)
        } else {
            self.to_send.push_back(itt)
        }
        self.tasks.insert(itt, task);
        told
    }

    /// Checks that a flush that starts now can promise durability; call it once for each flush.
    ///
    /// # Errors
    ///
    /// Acknowledged writes may be lost. Writes from now on are not affected.
    pub fn check_flush(&mut self) -> IoResult<()> {
        if self.unflushed.take_loss() { Err(lost_cache()) } else { Ok(()) }
    }

    /// True if something is queued, even if the window does not allow it yet.
    pub fn wants_to_send(&self) -> bool {
        !(self.control_pdus.is_empty() && self.bursts.is_empty() && self.to_send.is_empty())
    }

    /// The next PDU to send, if the window allows one.
    pub fn next_to_send(&mut self) -> Option<OutgoingPdu> {
        if let Some(mut header) = self.control_pdus.pop_front() {
            // CmdSN and ExpStatSN have the same offset in all PDUs of an initiator.
            header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
            header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
            return Some(OutgoingPdu { header, payload: Payload::new() });
        }
        while let Some(burst) = self.bursts.front_mut() {
            let Some(task) = self.tasks.get_mut(&burst.itt) else {
                // The command has expired.
                self.bursts.pop_front();
                continue;
            };
            let end = burst.end.min(burst.offset + self.parameters.send_bytes_max as usize);
            let is_last = end == burst.end;
            let header = DataOut {
                flags: if is_last { FINAL } else { 0 },
                lun: self.lun,
                itt: burst.itt.into(),
                ttt: burst.ttt.into(),
                exp_stat_sn: self.exp_stat_sn.into(),
                data_sn: burst.number.into(),
                buffer_offset: (burst.offset as u32).into(),
                ..DataOut::empty()
            };
            let payload = part_of(&task.command.payload, burst.offset, end);
            (burst.offset, burst.number) = (end, burst.number + 1);
            if is_last {
                task.bursts -= 1;
                self.bursts.pop_front();
            }
            return Some(OutgoingPdu { header: header.to_bytes(), payload });
        }
        self.next_command()
    }

    fn next_command(&mut self) -> Option<OutgoingPdu> {
        loop {
            if is_behind(self.cmd_sn, self.max_cmd_sn) {
                return None;
            }
            let itt = *self.to_send.front()?;
            let Some(task) = self.tasks.get_mut(&itt) else {
                self.to_send.pop_front();
                continue;
            };
            if !self.is_open && !task.command.is_probe {
                return None;
            }
            self.to_send.pop_front();
            let (length, room) = (bytes_in(&task.command.payload), room_of(&task.command.into));
            assert!(length == 0 || room == 0, "nothing is read and written in one command");
            let SessionParameters {
                initial_r2t, immediate_data, send_bytes_max, first_burst_bytes_max, ..
            } = self.parameters;
            let unsolicited = length.min(first_burst_bytes_max as usize);
            let immediate = if immediate_data { unsolicited.min(send_bytes_max as usize) } else { 0 };
            let more = !initial_r2t && immediate < unsolicited;
            if more {
                let ttt = NO_TAG;
                self.bursts.push_back(DataBurst { itt, ttt, offset: immediate, end: unsolicited, number: 0 });
                task.bursts += 1;
            }
            let direction = if length > 0 { WRITES } else { 0 } | if room > 0 { READS } else { 0 };
            let header = ScsiCommand {
                flags: if more { 0 } else { FINAL } | direction | ATTRIBUTE,
                lun: self.lun,
                itt: itt.into(),
                expected_transfer_length: (length.max(room) as u32).into(),
                cmd_sn: self.cmd_sn.into(),
                exp_stat_sn: self.exp_stat_sn.into(),
                cdb: task.command.cdb,
                ..ScsiCommand::empty()
            };
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
            let payload = part_of(&task.command.payload, 0, immediate);
            return Some(OutgoingPdu { header: header.to_bytes(), payload });
        }
    }

    /// Queues a NOP-Out that asks for an answer.
    pub fn ping(&mut self, itt: u32) {
        let ping =
            NopOut { first: IMMEDIATE, flags: FINAL, itt: itt.into(), ttt: NO_TAG.into(), ..NopOut::empty() };
        self.control_pdus.push_back(ping.to_bytes());
    }

    /// Answers a NOP-In.
    pub fn pong(&mut self, asked: &NopIn) {
        let pong = NopOut {
            first: IMMEDIATE,
            flags: FINAL,
            lun: asked.lun,
            itt: NO_TAG.into(),
            ttt: asked.ttt,
            ..NopOut::empty()
        };
        // Bounded: a target may ask faster than we can send.
        if self.control_pdus.len() < 64 {
            self.control_pdus.push_back(pong.to_bytes());
        }
    }

    /// Updates the command window from ExpCmdSN and MaxCmdSN.
    pub fn set_window(&mut self, expected: u32, max: u32) {
        // RFC 7143, 4.2.2.1: MaxCmdSN below ExpCmdSN - 1 is ignored.
        if !is_behind(expected.wrapping_sub(1), max) && is_behind(max, self.max_cmd_sn) {
            self.max_cmd_sn = max;
        }
    }

    pub fn advance_stat_sn(&mut self, number: u32) {
        if !is_behind(self.exp_stat_sn, number) {
            self.exp_stat_sn = number.wrapping_add(1);
        }
    }

    /// Lends the buffers of a read for a Data-In. `None` if the data are not for this command now, or go to
    /// more than one buffer; then [`Tasks::receive_data`] takes them.
    pub fn lend_buffers(&mut self, itt: u32, offset: u32, bytes: usize) -> Option<ReadBuffers> {
        let task = self.tasks.get_mut(&itt).filter(|task| task.received == offset as usize)?;
        let mut start = task.received;
        for (index, buffer) in task.command.into.iter().enumerate() {
            if start < buffer.len() {
                let end = start.checked_add(bytes).filter(|end| *end <= buffer.len())?;
                let buffers = std::mem::take(&mut task.command.into);
                return Some(ReadBuffers { buffers, index, range: start..end });
            }
            start -= buffer.len();
        }
        None
    }

    /// Takes lent buffers back. A command that has expired meanwhile needs none.
    pub fn return_buffers(&mut self, itt: u32, buffers: Vec<Buffer>) {
        if let Some(task) = self.tasks.get_mut(&itt) {
            task.command.into = buffers;
        }
    }

    /// Counts the data of a Data-In that were received into lent buffers.
    pub fn received_in_place(&mut self, itt: u32, bytes: usize) {
        if let Some(task) = self.tasks.get_mut(&itt) {
            task.received += bytes;
        }
    }

    /// Stores the data of a Data-In.
    pub fn receive_data(&mut self, itt: u32, offset: u32, data: &[u8]) -> Result<(), String> {
        let Some(task) = self.tasks.get_mut(&itt) else { return Ok(()) };
        let fits = data.len() <= room_of(&task.command.into) - task.received;
        if offset as usize != task.received || !fits {
            return Err("the target sent data out of order or too much".to_owned());
        }
        scatter(data, task.received, &mut task.command.into);
        task.received += data.len();
        Ok(())
    }

    /// Queues the burst an R2T asks for.
    pub fn data_requested(&mut self, asked: &ReadyToTransfer) -> Result<(), String> {
        let itt = asked.itt.get();
        let Some(task) = self.tasks.get_mut(&itt) else { return Ok(()) };
        let offset = asked.buffer_offset.get() as usize;
        let bytes = asked.desired_length.get();
        let end = offset + bytes as usize;
        let is_right = (1..=self.parameters.burst_bytes_max).contains(&bytes)
            && end <= bytes_in(&task.command.payload)
            && task.bursts <= self.parameters.outstanding_r2t_max;
        if !is_right {
            return Err("the target's R2T is out of range".to_owned());
        }
        task.bursts += 1;
        self.bursts.push_back(DataBurst { itt, ttt: asked.ttt.get(), offset, end, number: 0 });
        Ok(())
    }

    /// Completes a command with its SCSI status, residual count and sense data, or queues it to be sent
    /// again.
    pub fn complete(&mut self, itt: u32, status: u8, residual: u32, sense: &[u8], now: Moment) {
        const CHECK: u8 = 0x02;
        const BUSY: u8 = 0x08;
        const TASK_SET_FULL: u8 = 0x28;
        let sense = SenseCode::of(sense).filter(|_| status == CHECK);
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        match (status, sense) {
            (0, _) => self.succeed(itt, residual),
            (CHECK, Some(SenseCode { key: 6, additional })) if task.attentions < ATTENTIONS_MAX => {
                task.attentions += 1;
                self.retry_at(itt, now);
                if additional.0 == 0x29 && self.is_open {
                    // RESET OCCURRED: the unit's cache may be lost.
                    self.note_possible_loss();
                }
            }
            // NOT READY, or ABORTED COMMAND by somebody else.
            (CHECK, Some(SenseCode { key: 2 | 0xb, .. })) | (BUSY | TASK_SET_FULL, _) => {
                self.retry_at(itt, now + RETRY_DELAY);
            }
            _ => {
                let task = self.tasks.remove(&itt).expect("it was found just now");
                let error = error_of(&task.command.cdb, status, sense);
                // The caller may have dropped its future.
                let _ = task.tell.send(Err(CommandError { error, sense }));
            }
        }
    }

    fn succeed(&mut self, itt: u32, residual: u32) {
        let task = self.tasks.remove(&itt).expect("it was found just now");
        let Task { command, received, answered_before, tell, .. } = task;
        let is_whole = received == room_of(&command.into) && residual == 0;
        if !is_whole && !command.is_probe {
            let story =
                format!("{}: the target transferred fewer bytes than requested", describe(&command.cdb));
            let error = IoError::new(IoErrorKind::Medium, story);
            let _ = tell.send(Err(CommandError { error, sense: None }));
            return;
        }
        match command.effect {
            CacheEffect::Write => self.unflushed.wrote(),
            // Writes answered while the flush was outstanding are not covered by it.
            CacheEffect::Flush => self.unflushed.flushed(answered_before),
            CacheEffect::None => {}
        }
        let _ = tell.send(Ok(CommandOutput { into: command.into, received }));
    }

    fn retry_at(&mut self, itt: u32, when: Moment) {
        let task = self.tasks.get_mut(&itt).expect("it is here");
        (task.received, task.bursts) = (0, 0);
        self.bursts.retain(|burst| burst.itt != itt);
        self.delayed.push((when, itt));
    }

    /// Queues commands whose delay is over; true if there are any.
    pub fn release_delayed(&mut self, now: Moment) -> bool {
        let (due, delayed) = self.delayed.drain(..).partition(|(when, _)| *when <= now);
        self.delayed = delayed;
        let due: Vec<(Moment, u32)> = due;
        for (_, itt) in &due {
            let is_probe = self.tasks.get(itt).is_some_and(|task| task.command.is_probe);
            if is_probe { self.to_send.push_front(*itt) } else { self.to_send.push_back(*itt) }
        }
        !due.is_empty()
    }

    /// Fails commands past their deadline; true if there are any.
    pub fn expire(&mut self, now: Moment, why: &str) -> bool {
        let late = self.itts(|task| task.deadline <= now);
        self.fail(&late, &IoError::new(IoErrorKind::Disconnected, why));
        !late.is_empty()
    }

    fn itts(&self, is_meant: impl Fn(&Task) -> bool) -> Vec<u32> {
        self.tasks.iter().filter(|(_, task)| is_meant(task)).map(|(itt, _)| *itt).collect()
    }

    fn fail(&mut self, itts: &[u32], error: &IoError) {
        for itt in itts {
            let task = self.tasks.remove(itt).expect("it was found just now");
            let error = IoError::new(error.kind(), format!("{}: {error}", describe(&task.command.cdb)));
            let _ = task.tell.send(Err(CommandError { error, sense: None }));
        }
    }

    /// The unit may have lost writes that were not flushed.
    fn note_possible_loss(&mut self) {
        let flushes = self.itts(|task| task.command.effect == CacheEffect::Flush);
        if self.unflushed.broke(!flushes.is_empty()) {
            for itt in flushes {
                let task = self.tasks.remove(&itt).expect("it was found just now");
                let _ = task.tell.send(Err(CommandError { error: lost_cache(), sense: None }));
            }
        }
    }
}

fn lost_cache() -> IoError {
    let story = "flush: the connection broke or the unit was reset, and acknowledged writes may be lost";
    IoError::new(IoErrorKind::CacheLost, story)
}

fn describe(cdb: &Cdb) -> String {
    let block = u64::from_be_bytes(cdb[2..10].try_into().expect("eight bytes"));
    let count = u32::from_be_bytes(cdb[10..14].try_into().expect("four bytes"));
    match cdb[0] {
        code::READ_16 => format!("READ(16) of {count} blocks at {block}"),
        code::WRITE_16 => format!("WRITE(16) of {count} blocks at {block}"),
        code::SYNCHRONIZE_CACHE_10 => "SYNCHRONIZE CACHE(10)".to_owned(),
        code::UNMAP => "UNMAP".to_owned(),
        other => format!("command {other:#04x}"),
    }
}

fn error_of(cdb: &Cdb, status: u8, sense: Option<SenseCode>) -> IoError {
    let (kind, why) = match (status, sense) {
        (0x18, _) => (IoErrorKind::Busy, "another initiator has reserved the unit".to_owned()),
        (0x02, Some(SenseCode { key, additional: (code, qualifier) })) => {
            let kind = match (key, code, qualifier) {
                (5, 0x21, 0) => IoErrorKind::OutOfRange,
                (5, 0x25, 0) => IoErrorKind::NotFound,
                (5, ..) => IoErrorKind::Unsupported,
                (7, 0x27, 7) => IoErrorKind::NoSpace,
                (7, ..) => IoErrorKind::ReadOnly,
                _ => IoErrorKind::Medium,
            };
            (kind, format!("CHECK CONDITION: sense key {key:x}, code {code:02x}/{qualifier:02x}"))
        }
        _ => (IoErrorKind::Medium, format!("SCSI status {status:#04x}")),
    };
    IoError::new(kind, format!("{}: {why}", describe(cdb)))
}
