//! Commands on their way, and what is to be sent of them. Without any I/O.
//!
//! Invariants:
//!
//! 1. A command is known by its tag, which no other one has that is here.
//! 2. It is here until it is answered, or its time is up; what was sent over a connection that broke is sent again over the next.
//! 3. No command is sent beyond the window the target gives, and no data but what it takes unasked or asks for.
//! 4. A flush says no more than [`Unflushed`] allows.
//! 5. Until a connection is open, only commands that look at the unit are sent.

use super::commands::{Cdb, Trouble};
use crate::{
    scsi::commands::code,
    session::negotiation::Agreed,
    wire::{
        frame::HEADER_BYTES,
        pdu::{DataOut, FINAL, Header, IMMEDIATE, NO_TAG, NopIn, NopOut, ReadyToTransfer, ScsiCommand},
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use tokio::sync::oneshot;
use world::{
    Buffer, IoError, IoErrorKind, IoResult, Moment,
    pieces::{Payload, bytes_in, part_of, scatter},
    unflushed::Unflushed,
};

const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// SIMPLE: in any order.
const ATTRIBUTE: u8 = 0x01;
/// A unit may have so many things to say before a command is done.
const ATTENTIONS_MAX: u32 = 32;
/// Before a command is tried again that a unit could not do at the time.
const REST: Duration = Duration::from_millis(200);

/// What an answer to a command means for what is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Other,
    /// It is stable only after a flush.
    Write,
    /// What was answered before is stable.
    Flush,
}

/// What is asked of a unit.
pub struct Command {
    /// What.
    pub cdb: Cdb,
    /// See [`Kind`].
    pub kind: Kind,
    /// To be filled with what comes back.
    pub into: Vec<Buffer>,
    /// What is written.
    pub payload: Payload,
    /// It looks at the unit, before others are sent; less may come back than there is room for, and it is not sent again.
    pub is_probe: bool,
}

/// What came back.
#[derive(Debug)]
pub struct Done {
    /// As asked, filled.
    pub into: Vec<Buffer>,
    /// Bytes of them that were filled.
    pub received: usize,
}

/// Why a command was not done.
#[derive(Clone, Debug)]
pub struct NotDone {
    /// For callers.
    pub error: IoError,
    /// What the unit said, if it was asked.
    pub trouble: Option<Trouble>,
}

struct Task {
    command: Command,
    deadline: Moment,
    received: usize,
    /// Bursts of data that were asked for and are not sent yet.
    bursts: u32,
    attentions: u32,
    /// Writes that were answered before this was asked.
    answered_before: u64,
    tell: oneshot::Sender<Result<Done, NotDone>>,
}

/// Data that may be sent now.
struct Burst {
    tag: u32,
    transfer: u32,
    offset: usize,
    end: usize,
    number: u32,
}

/// A unit to be sent.
pub struct Outgoing {
    /// Its header.
    pub header: [u8; HEADER_BYTES],
    /// Its data.
    pub payload: Payload,
}

/// Why a connection is of no more use.
pub type Broken = String;

/// See the module's documentation.
pub struct Tasks {
    lun: [u8; 8],
    agreed: Agreed,
    command_next: u32,
    command_max: u32,
    status_next: u32,
    is_open: bool,
    tag_next: u32,
    tasks: BTreeMap<u32, Task>,
    /// Tags of those that are to be sent, in order.
    to_send: VecDeque<u32>,
    /// Tags of those that are to be sent later.
    resting: Vec<(Moment, u32)>,
    bursts: VecDeque<Burst>,
    /// What is neither command nor data.
    notes: VecDeque<[u8; HEADER_BYTES]>,
    unflushed: Unflushed,
}

fn room_of(into: &[Buffer]) -> usize {
    into.iter().map(|buffer| buffer.len()).sum()
}

/// Whether number `one` comes behind `other`, where numbers begin again after the last (RFC 1982).
fn is_behind(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

impl Tasks {
    /// Commands to the unit of that address.
    pub fn new(lun: [u8; 8]) -> Self {
        Self {
            lun,
            agreed: Agreed::default(),
            command_next: 0,
            command_max: 0,
            status_next: 0,
            is_open: false,
            tag_next: 1,
            tasks: BTreeMap::new(),
            to_send: VecDeque::new(),
            resting: Vec::new(),
            bursts: VecDeque::new(),
            notes: VecDeque::new(),
            unflushed: Unflushed::default(),
        }
    }

    /// Another connection: everything is sent again, but for flushes that could not mean what they say, and for who looked at the
    /// unit over the last one.
    pub fn begin(&mut self, agreed: Agreed, command: (u32, u32), status_next: u32) {
        (self.agreed, self.status_next) = (agreed, status_next);
        (self.command_next, self.command_max) = command;
        self.is_open = false;
        self.notes.clear();
        self.bursts.clear();
        self.resting.clear();
        let probes: Vec<u32> = self.tags(|task| task.command.is_probe);
        self.fail(&probes, &IoError::new(IoErrorKind::Disconnected, "the connection broke"));
        self.maybe_lost();
        for task in self.tasks.values_mut() {
            (task.received, task.bursts) = (0, 0);
        }
        self.to_send = self.tasks.keys().copied().collect();
    }

    /// From now on all commands are sent.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Whether any command waits for its answer.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Takes a command in; it is sent as soon as it may be.
    pub fn add(&mut self, command: Command, deadline: Moment) -> oneshot::Receiver<Result<Done, NotDone>> {
        let (tell, told) = oneshot::channel();
        while self.tag_next == NO_TAG || self.tasks.contains_key(&self.tag_next) {
            self.tag_next = self.tag_next.wrapping_add(1);
        }
        let tag = self.tag_next;
        self.tag_next = tag.wrapping_add(1);
        let answered_before = self.unflushed.answered();
        let task = Task { command, deadline, received: 0, bursts: 0, attentions: 0, answered_before, tell };
        match task.command.is_probe {
            true => self.to_send.push_front(tag),
            false => self.to_send.push_back(tag),
        }
        self.tasks.insert(tag, task);
        told
    }

    /// Whether a flush that begins now can say that all is stable. Asked once for each.
    ///
    /// # Errors
    ///
    /// Writes may be lost. What is written from now on is not concerned.
    pub fn check_flush(&mut self) -> IoResult<()> {
        if self.unflushed.take_loss() { Err(lost_cache()) } else { Ok(()) }
    }

    /// Whether anything waits to be sent; perhaps it may not be sent yet.
    pub fn wants_to_send(&self) -> bool {
        !(self.notes.is_empty() && self.bursts.is_empty() && self.to_send.is_empty())
    }

    /// The unit that is to be sent next, if any may be.
    pub fn next_to_send(&mut self) -> Option<Outgoing> {
        if let Some(mut header) = self.notes.pop_front() {
            // Where all that goes out has it.
            header[24..28].copy_from_slice(&self.command_next.to_be_bytes());
            header[28..32].copy_from_slice(&self.status_next.to_be_bytes());
            return Some(Outgoing { header, payload: Payload::new() });
        }
        while let Some(burst) = self.bursts.front_mut() {
            let Some(task) = self.tasks.get_mut(&burst.tag) else {
                // Its time was up.
                self.bursts.pop_front();
                continue;
            };
            let end = burst.end.min(burst.offset + self.agreed.send_bytes_max as usize);
            let is_last = end == burst.end;
            let header = DataOut {
                flags: if is_last { FINAL } else { 0 },
                lun: self.lun,
                task: burst.tag.into(),
                transfer: burst.transfer.into(),
                expected_status: self.status_next.into(),
                data_number: burst.number.into(),
                offset: (burst.offset as u32).into(),
                ..DataOut::empty()
            };
            let payload = part_of(&task.command.payload, burst.offset, end);
            (burst.offset, burst.number) = (end, burst.number + 1);
            if is_last {
                task.bursts -= 1;
                self.bursts.pop_front();
            }
            return Some(Outgoing { header: header.to_bytes(), payload });
        }
        self.next_command()
    }

    fn next_command(&mut self) -> Option<Outgoing> {
        loop {
            if is_behind(self.command_next, self.command_max) {
                return None;
            }
            let tag = *self.to_send.front()?;
            let Some(task) = self.tasks.get_mut(&tag) else {
                self.to_send.pop_front();
                continue;
            };
            if !self.is_open && !task.command.is_probe {
                return None;
            }
            self.to_send.pop_front();
            let (length, room) = (bytes_in(&task.command.payload), room_of(&task.command.into));
            assert!(length == 0 || room == 0, "nothing is read and written in one command");
            let Agreed { initial_r2t, immediate_data, send_bytes_max, first_burst_bytes_max, .. } =
                self.agreed;
            let unasked = length.min(first_burst_bytes_max as usize);
            let immediate = if immediate_data { unasked.min(send_bytes_max as usize) } else { 0 };
            let more = !initial_r2t && immediate < unasked;
            if more {
                let transfer = NO_TAG;
                self.bursts.push_back(Burst { tag, transfer, offset: immediate, end: unasked, number: 0 });
                task.bursts += 1;
            }
            let direction = if length > 0 { WRITES } else { 0 } | if room > 0 { READS } else { 0 };
            let header = ScsiCommand {
                flags: if more { 0 } else { FINAL } | direction | ATTRIBUTE,
                lun: self.lun,
                task: tag.into(),
                expected_bytes: (length.max(room) as u32).into(),
                command_number: self.command_next.into(),
                expected_status: self.status_next.into(),
                cdb: task.command.cdb,
                ..ScsiCommand::empty()
            };
            self.command_next = self.command_next.wrapping_add(1);
            let payload = part_of(&task.command.payload, 0, immediate);
            return Some(Outgoing { header: header.to_bytes(), payload });
        }
    }

    /// Asks whether anybody is there.
    pub fn ping(&mut self, tag: u32) {
        let ping = NopOut {
            first: IMMEDIATE,
            flags: FINAL,
            task: tag.into(),
            transfer: NO_TAG.into(),
            ..NopOut::empty()
        };
        self.notes.push_back(ping.to_bytes());
    }

    /// Answers who asks whether we are here.
    pub fn pong(&mut self, asked: &NopIn) {
        let pong = NopOut {
            first: IMMEDIATE,
            flags: FINAL,
            lun: asked.lun,
            task: NO_TAG.into(),
            transfer: asked.transfer,
            ..NopOut::empty()
        };
        // Who asks without end is not answered without end.
        if self.notes.len() < 64 {
            self.notes.push_back(pong.to_bytes());
        }
    }

    /// What every answer says: how far commands may go.
    pub fn window(&mut self, expected: u32, max: u32) {
        // A window that ends before it begins says nothing (RFC 7143, 4.2.2.1).
        if !is_behind(expected.wrapping_sub(1), max) && is_behind(max, self.command_max) {
            self.command_max = max;
        }
    }

    /// A number of status has come.
    pub fn status(&mut self, number: u32) {
        if !is_behind(self.status_next, number) {
            self.status_next = number.wrapping_add(1);
        }
    }

    /// Data of a read.
    pub fn data_in(&mut self, tag: u32, offset: u32, data: &[u8]) -> Result<(), Broken> {
        let Some(task) = self.tasks.get_mut(&tag) else { return Ok(()) };
        let fits = data.len() <= room_of(&task.command.into) - task.received;
        if offset as usize != task.received || !fits {
            return Err("data came that were not asked for".to_owned());
        }
        scatter(data, task.received, &mut task.command.into);
        task.received += data.len();
        Ok(())
    }

    /// The target asks for data.
    pub fn asked_for(&mut self, asked: &ReadyToTransfer) -> Result<(), Broken> {
        let tag = asked.task.get();
        let Some(task) = self.tasks.get_mut(&tag) else { return Ok(()) };
        let offset = asked.offset.get() as usize;
        let bytes = asked.desired_bytes.get();
        let end = offset + bytes as usize;
        let is_right = (1..=self.agreed.burst_bytes_max).contains(&bytes)
            && end <= bytes_in(&task.command.payload)
            && task.bursts <= self.agreed.requests_max;
        if !is_right {
            return Err("it asks for data there are none of".to_owned());
        }
        task.bursts += 1;
        self.bursts.push_back(Burst { tag, transfer: asked.transfer.get(), offset, end, number: 0 });
        Ok(())
    }

    /// A command is answered: with that status, so many bytes too few or too many, and sense data if there are any.
    pub fn answered(&mut self, tag: u32, status: u8, residual: u32, sense: &[u8], now: Moment) {
        const CHECK: u8 = 0x02;
        const BUSY: u8 = 0x08;
        const TASK_SET_FULL: u8 = 0x28;
        let trouble = Trouble::of(sense).filter(|_| status == CHECK);
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        match (status, trouble) {
            (0, _) => self.good(tag, residual),
            (CHECK, Some(Trouble { key: 6, additional })) if task.attentions < ATTENTIONS_MAX => {
                task.attentions += 1;
                self.again(tag, now);
                if additional.0 == 0x29 && self.is_open {
                    // It was reset: what was in its cache is lost, perhaps.
                    self.maybe_lost();
                }
            }
            // Not ready; aborted, not by us.
            (CHECK, Some(Trouble { key: 2 | 0xb, .. })) | (BUSY | TASK_SET_FULL, _) => {
                self.again(tag, now + REST);
            }
            _ => {
                let task = self.tasks.remove(&tag).expect("it was found just now");
                let error = error_of(&task.command.cdb, status, trouble);
                // Nobody may be waiting any more.
                let _ = task.tell.send(Err(NotDone { error, trouble }));
            }
        }
    }

    fn good(&mut self, tag: u32, residual: u32) {
        let task = self.tasks.remove(&tag).expect("it was found just now");
        let Task { command, received, answered_before, tell, .. } = task;
        let is_whole = received == room_of(&command.into) && residual == 0;
        if !is_whole && !command.is_probe {
            let story =
                format!("{}: the target moved fewer bytes than were asked for", describe(&command.cdb));
            let error = IoError::new(IoErrorKind::Medium, story);
            let _ = tell.send(Err(NotDone { error, trouble: None }));
            return;
        }
        match command.kind {
            Kind::Write => self.unflushed.wrote(),
            // What was answered while it was under way is not in it.
            Kind::Flush => self.unflushed.flushed(answered_before),
            Kind::Other => {}
        }
        let _ = tell.send(Ok(Done { into: command.into, received }));
    }

    /// To be sent once more.
    fn again(&mut self, tag: u32, when: Moment) {
        let task = self.tasks.get_mut(&tag).expect("it is here");
        (task.received, task.bursts) = (0, 0);
        self.bursts.retain(|burst| burst.tag != tag);
        self.resting.push((when, tag));
    }

    /// Lets those be sent that have rested long enough; whether there are any.
    pub fn wake(&mut self, now: Moment) -> bool {
        let (due, resting) = self.resting.drain(..).partition(|(when, _)| *when <= now);
        self.resting = resting;
        let due: Vec<(Moment, u32)> = due;
        for (_, tag) in &due {
            let is_probe = self.tasks.get(tag).is_some_and(|task| task.command.is_probe);
            if is_probe { self.to_send.push_front(*tag) } else { self.to_send.push_back(*tag) }
        }
        !due.is_empty()
    }

    /// Gives up those whose time is up; whether there were any.
    pub fn give_up(&mut self, now: Moment, why: &str) -> bool {
        let late = self.tags(|task| task.deadline <= now);
        self.fail(&late, &IoError::new(IoErrorKind::Disconnected, why));
        !late.is_empty()
    }

    fn tags(&self, is_meant: impl Fn(&Task) -> bool) -> Vec<u32> {
        self.tasks.iter().filter(|(_, task)| is_meant(task)).map(|(tag, _)| *tag).collect()
    }

    fn fail(&mut self, tags: &[u32], error: &IoError) {
        for tag in tags {
            let task = self.tasks.remove(tag).expect("it was found just now");
            let error = IoError::new(error.kind(), format!("{}: {error}", describe(&task.command.cdb)));
            let _ = task.tell.send(Err(NotDone { error, trouble: None }));
        }
    }

    /// Who answers may have lost what was not flushed.
    fn maybe_lost(&mut self) {
        let flushes = self.tags(|task| task.command.kind == Kind::Flush);
        if self.unflushed.broke(!flushes.is_empty()) {
            for tag in flushes {
                let task = self.tasks.remove(&tag).expect("it was found just now");
                let _ = task.tell.send(Err(NotDone { error: lost_cache(), trouble: None }));
            }
        }
    }
}

fn lost_cache() -> IoError {
    let story =
        "flush: the connection broke or the unit was reset, and writes that were answered before may be lost";
    IoError::new(IoErrorKind::Medium, story)
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

fn error_of(cdb: &Cdb, status: u8, trouble: Option<Trouble>) -> IoError {
    let (kind, why) = match (status, trouble) {
        (0x18, _) => (IoErrorKind::Busy, "another initiator has reserved the unit".to_owned()),
        (0x02, Some(Trouble { key, additional: (code, qualifier) })) => {
            let kind = match (key, code, qualifier) {
                (5, 0x21, 0) => IoErrorKind::OutOfRange,
                (5, 0x25, 0) => IoErrorKind::NotFound,
                (5, ..) => IoErrorKind::Unsupported,
                (7, 0x27, 7) => IoErrorKind::NoSpace,
                (7, ..) => IoErrorKind::ReadOnly,
                _ => IoErrorKind::Medium,
            };
            (kind, format!("the unit says: sense key {key:x}, code {code:02x}/{qualifier:02x}"))
        }
        _ => (IoErrorKind::Medium, format!("the unit answers with status {status:#04x}")),
    };
    IoError::new(kind, format!("{}: {why}", describe(cdb)))
}
