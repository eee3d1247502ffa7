//! A connection: logged in, then commands until it ends.
//!
//! Invariants:
//!
//! 1. Commands are taken in the order of their numbers, and executed as they come; each is answered once, unless it was
//!    aborted: then its answer is held back.
//! 2. What does not keep to the protocol is rejected, or ends the connection, and nothing else.
//! 3. When the connection ends, what was begun is done, and its session's reservations of RESERVE(6) are over.

use super::{
    Sessions, Targets,
    logging_in::log_in,
    sending::{Sending, StatusNumber},
    tasks::{Coming, Next, WRITES},
};
use crate::{
    scsi::{
        commands::code,
        inquiry,
        reservations::Nexus,
        sense::{AdditionalSense, Sense, SenseKey},
        unit::{Asked, Data, Ended, Unit, bytes_of},
    },
    session::{login::LoggedIn, negotiation::Agreed},
    wire::{
        frame::{Digests, Frame, HEADER_BYTES, Unreadable},
        pdu::{
            DataIn, DataOut, FINAL, Header, IMMEDIATE, Logout, LogoutResponse, NO_TAG, NopIn, NopOut,
            ReadyToTransfer, Reject, ScsiCommand, ScsiResponse, TaskManagement, opcode,
        },
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use tokio::io::{AsyncRead, BufReader, split};
use world::{Buffer, Stream, World, before};

const LOGIN_MAX: Duration = Duration::from_secs(15);
/// Reasons to reject (RFC 7143, 11.17.1).
pub(super) const PROTOCOL_ERROR: u8 = 0x04;
const NOT_SUPPORTED: u8 = 0x05;
const DATA_DIGEST_ERROR: u8 = 0x02;

/// Why a connection ends that did not log out, in a line.
pub(super) type Broken = String;

pub(super) fn broken(unreadable: Unreadable) -> Broken {
    unreadable.to_string()
}

/// Serves one connection to its end.
pub(super) async fn run(
    world: &World,
    stream: Stream,
    targets: &Targets,
    portal: &str,
    sessions: &Sessions,
    tell: impl FnOnce(&str, Option<&str>),
) -> Result<(), Broken> {
    let (reader, mut writer) = split(stream);
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let logging_in = log_in(&mut reader, &mut writer, targets);
    let logged_in = before(world.sleep(LOGIN_MAX), logging_in).await;
    let logged_in = logged_in.unwrap_or_else(|| Err("it took too long over its login".to_owned()))?;
    let Some((LoggedIn { initiator, session, target, agreed }, sending)) = logged_in else { return Ok(()) };
    tell(&initiator, target.as_ref().map(|target| target.name.as_str()));
    let hex: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
    let nexus = Nexus(format!("{initiator},i,0x{hex}"));
    let name = format!("{} {}", nexus.0, target.as_ref().map_or("", |target| &target.name));
    let replaced = sessions.begin(&name);
    let connection = Rc::new(Connection {
        world: world.clone(),
        targets: targets.clone(),
        portal: portal.to_owned(),
        target_name: target.as_ref().map_or_else(String::new, |target| target.name.clone()),
        units: target.as_ref().map_or_else(BTreeMap::new, |target| target.units.clone()),
        has_target: target.is_some(),
        nexus,
        agreed,
        sending,
        coming: RefCell::default(),
        executing: RefCell::default(),
        transfer_next: Cell::new(1),
        idle: tokio::sync::Notify::new(),
    });
    connection.units.values().for_each(|unit| unit.begin(&connection.nexus));
    let writing = {
        let connection = Rc::clone(&connection);
        world.spawn("iscsi answers", async move { connection.sending.write_all(&mut writer).await })
    };
    let ended = before(replaced.notified(), Rc::clone(&connection).read_all(&mut reader)).await;
    connection.until_idle().await;
    connection.sending.close();
    let written = writing.await;
    connection.units.values().for_each(|unit| unit.end(&connection.nexus));
    sessions.end(&name, &replaced);
    match ended {
        None => Err("its initiator has begun the session anew".to_owned()),
        Some(Ok(())) => written.map_err(|error| error.to_string()),
        Some(Err(why)) => Err(why),
    }
}

/// A command that is executed.
pub(super) struct Executing {
    pub(super) unit: u64,
    pub(super) is_aborted: Cell<bool>,
}

pub(super) struct Connection {
    world: World,
    pub(super) targets: Targets,
    pub(super) portal: String,
    pub(super) target_name: String,
    pub(super) units: BTreeMap<u64, Rc<Unit>>,
    has_target: bool,
    pub(super) nexus: Nexus,
    pub(super) agreed: Agreed,
    pub(super) sending: Sending,
    /// By task.
    pub(super) coming: RefCell<BTreeMap<u32, Coming>>,
    /// By task.
    pub(super) executing: RefCell<BTreeMap<u32, Rc<Executing>>>,
    transfer_next: Cell<u32>,
    idle: tokio::sync::Notify,
}

/// Whether to go on with a connection.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    Out,
}

impl Connection {
    async fn until_idle(&self) {
        while !self.executing.borrow().is_empty() {
            self.idle.notified().await;
        }
    }

    async fn read_all(self: Rc<Self>, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), Broken> {
        let digests = Digests { header: self.agreed.header_digest, data: self.agreed.data_digest };
        loop {
            let data_max = self.agreed.receive_bytes_max as usize;
            let frame = match Frame::read(reader, digests, data_max).await {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(Unreadable::DataDigest(frame)) => {
                    // Error recovery level 0: who sent it begins anew.
                    self.reject(&frame.header, DATA_DIGEST_ERROR);
                    return Err(broken(Unreadable::DataDigest(frame)));
                }
                Err(unreadable) => return Err(broken(unreadable)),
            };
            if self.take(frame)? == Going::Out {
                return Ok(());
            }
        }
    }

    /// Takes a unit in.
    fn take(self: &Rc<Self>, frame: Frame) -> Result<Going, Broken> {
        let is_immediate = frame.header[0] & IMMEDIATE != 0;
        let is_numbered = !matches!(frame.opcode(), opcode::DATA_OUT | opcode::SNACK);
        let number = u32::from_be_bytes(frame.header[24..28].try_into().expect("four bytes"));
        if is_numbered && !is_immediate {
            if number != self.sending.expected_command() || !self.sending.may_come(number) {
                // Outside the window, or out of order where nothing can overtake: to be ignored (RFC 7143, 4.2.2.1).
                return Ok(Going::On);
            }
            self.sending.command_came();
        }
        let counts = is_numbered && !is_immediate;
        match frame.opcode() {
            opcode::SCSI_COMMAND if self.has_target => {
                self.begin(frame, counts);
                return Ok(Going::On);
            }
            opcode::DATA_OUT if self.has_target => self.more_data(&frame),
            opcode::TASK_MANAGEMENT if self.has_target => self.manage(&TaskManagement::of(&frame.header)),
            opcode::NOP_OUT => self.echo(&frame),
            opcode::TEXT => self.answer_text(&frame),
            opcode::LOGOUT => {
                let request = Logout::of(&frame.header);
                let response = LogoutResponse { flags: FINAL, task: request.task, ..LogoutResponse::empty() };
                self.sending.send(&response, StatusNumber::Counts, Vec::new());
                return Ok(Going::Out);
            }
            opcode::LOGIN => return Err("it logs in once more".to_owned()),
            _ => self.reject(&frame.header, NOT_SUPPORTED),
        }
        if counts {
            self.sending.command_done();
        }
        Ok(Going::On)
    }

    pub(super) fn reject(&self, header: &[u8; HEADER_BYTES], reason: u8) {
        let reject = Reject { flags: FINAL, reason, no_task: NO_TAG.into(), ..Reject::empty() };
        self.sending.send(&reject, StatusNumber::Counts, header.to_vec());
    }

    fn echo(&self, frame: &Frame) {
        let request = NopOut::of(&frame.header);
        // An answer to one of ours: we ask none.
        if request.task.get() == NO_TAG {
            return;
        }
        let room = self.agreed.send_bytes_max as usize;
        let data = frame.data[..frame.data.len().min(room)].to_vec();
        let response = NopIn {
            flags: FINAL,
            lun: request.lun,
            task: request.task,
            transfer: NO_TAG.into(),
            ..NopIn::empty()
        };
        self.sending.send(&response, StatusNumber::Counts, data);
    }

    fn begin(self: &Rc<Self>, frame: Frame, counts: bool) {
        let command = ScsiCommand::of(&frame.header);
        let task = command.task.get();
        let is_known =
            self.coming.borrow().contains_key(&task) || self.executing.borrow().contains_key(&task);
        let coming = if is_known { None } else { Coming::new(command, frame.data, &self.agreed).ok() };
        let Some(coming) = coming else {
            self.reject(&frame.header, PROTOCOL_ERROR);
            if counts {
                self.sending.command_done();
            }
            return;
        };
        self.go_on(coming, counts);
    }

    /// Executes a command, or asks for its data, or waits for them.
    fn go_on(self: &Rc<Self>, mut coming: Coming, counts: bool) {
        let task = coming.command.task.get();
        match coming.next(&self.agreed) {
            Next::Execute => return self.execute(coming, counts),
            Next::Wait => {}
            Next::Ask { offset, bytes } => {
                let tag = self.transfer_next.get();
                self.transfer_next.set(if tag + 1 == NO_TAG { 1 } else { tag + 1 });
                coming.asks(tag, bytes);
                let asked = ReadyToTransfer {
                    flags: FINAL,
                    lun: coming.command.lun,
                    task: task.into(),
                    transfer: tag.into(),
                    offset: offset.into(),
                    desired_bytes: bytes.into(),
                    ..ReadyToTransfer::empty()
                };
                self.sending.send(&asked, StatusNumber::Shows, Vec::new());
            }
        }
        // Until it is executed it does not hold up the window: what it may hold is bounded by what it said.
        self.coming.borrow_mut().insert(task, coming);
        if counts {
            self.sending.command_done();
        }
    }

    fn more_data(self: &Rc<Self>, frame: &Frame) {
        let header = DataOut::of(&frame.header);
        let Some(mut coming) = self.coming.borrow_mut().remove(&header.task.get()) else {
            // Of a command that was aborted, or refused.
            return;
        };
        match coming.take(&header, &frame.data) {
            Ok(()) => self.go_on(coming, false),
            Err(_) => {
                self.reject(&frame.header, PROTOCOL_ERROR);
                let sense = Sense::new(SenseKey::AbortedCommand, AdditionalSense::DATA_PHASE_ERROR);
                self.answer(&coming.command, Ended::Check(sense));
            }
        }
    }

    fn execute(self: &Rc<Self>, coming: Coming, counts: bool) {
        let task = coming.command.task.get();
        let unit = unit_of(&coming.command.lun);
        let executing = Rc::new(Executing { unit, is_aborted: Cell::new(false) });
        self.executing.borrow_mut().insert(task, Rc::clone(&executing));
        let connection = Rc::clone(self);
        self.world.spawn("iscsi command", async move {
            let Coming { command, data, .. } = coming;
            let ended = connection.ask(unit, &command, data).await;
            if counts {
                connection.sending.command_done();
            }
            if !executing.is_aborted.get() {
                connection.answer(&command, ended);
            }
            let mut all = connection.executing.borrow_mut();
            if all.get(&task).is_some_and(|known| Rc::ptr_eq(known, &executing)) {
                all.remove(&task);
            }
            connection.idle.notify_one();
        });
    }

    async fn ask(&self, number: u64, command: &ScsiCommand, data: Vec<u8>) -> Ended {
        let numbers: Vec<u64> = self.units.keys().copied().collect();
        let cdb = &command.cdb[..];
        let data = if data.is_empty() { Vec::new() } else { vec![Buffer::copy_of(&data)] };
        let asked = Asked { nexus: &self.nexus, target: &self.target_name, cdb, data, units: &numbers };
        match (self.units.get(&number), cdb[0]) {
            (Some(unit), _) => unit.execute(asked).await,
            // Whoever looks for units asks number 0, whether it is there or not.
            (None, code::REPORT_LUNS) => match self.units.values().next() {
                Some(unit) => unit.execute(asked).await,
                None => Ended::Good(Data::Parameters(vec![0; 8])),
            },
            (None, code::INQUIRY) => {
                let room = usize::from(u16::from_be_bytes([cdb[3], cdb[4]]));
                let mut data = inquiry::no_unit();
                data.truncate(room);
                Ended::Good(Data::Parameters(data))
            }
            (None, code::REQUEST_SENSE) => {
                let sense = Sense::illegal(AdditionalSense::UNIT_NOT_SUPPORTED).fixed();
                Ended::Good(Data::Parameters(sense[..sense.len().min(cdb[4].into())].to_vec()))
            }
            _ => Ended::Check(Sense::illegal(AdditionalSense::UNIT_NOT_SUPPORTED)),
        }
    }

    fn answer(&self, command: &ScsiCommand, ended: Ended) {
        match ended {
            Ended::Good(data) => self.answer_good(command, data),
            Ended::Check(sense) => {
                let sense = sense.fixed();
                let mut data = (sense.len() as u16).to_be_bytes().to_vec();
                data.extend(sense);
                self.respond(command, 0x02, 0, data);
            }
            Ended::Conflict => self.respond(command, 0x18, 0, Vec::new()),
        }
    }

    /// Data, then the status: with the last of them, if there are any.
    fn answer_good(&self, command: &ScsiCommand, data: Data) {
        let bytes = match data {
            Data::None => Vec::new(),
            Data::Parameters(bytes) => bytes,
            Data::Blocks(buffers) => bytes_of(&buffers),
        };
        let reads = command.flags & 0x40 != 0;
        let room = if reads { command.expected_bytes.get() as usize } else { 0 };
        let sent = bytes.len().min(room);
        if sent == 0 {
            return self.respond(command, 0, bytes.len(), Vec::new());
        }
        let (flags, residual) = residual_of(command, bytes.len());
        let mut offset = 0;
        let mut number = 0_u32;
        while offset < sent {
            let burst_end =
                (offset / self.agreed.burst_bytes_max as usize + 1) * self.agreed.burst_bytes_max as usize;
            let end = (offset + self.agreed.send_bytes_max as usize).min(sent).min(burst_end);
            let is_last = end == sent;
            let mut header = DataIn {
                lun: command.lun,
                task: command.task,
                transfer: NO_TAG.into(),
                data_number: number.into(),
                offset: (offset as u32).into(),
                ..DataIn::empty()
            };
            if is_last || end == burst_end {
                header.flags |= FINAL;
            }
            let mut counted = StatusNumber::Absent;
            if is_last {
                header.flags |= flags | 0x01;
                header.residual = residual.into();
                counted = StatusNumber::Counts;
            }
            self.sending.send(&header, counted, bytes[offset..end].to_vec());
            offset = end;
            number += 1;
        }
    }

    fn respond(&self, command: &ScsiCommand, status: u8, given: usize, data: Vec<u8>) {
        let (flags, residual) = if status == 0 { residual_of(command, given) } else { (0, 0) };
        let response = ScsiResponse {
            flags: FINAL | flags,
            status,
            task: command.task,
            residual: residual.into(),
            ..ScsiResponse::empty()
        };
        self.sending.send(&response, StatusNumber::Counts, data);
    }
}

/// Overflow or underflow, and by how many bytes, of a command that gave so many.
fn residual_of(command: &ScsiCommand, given: usize) -> (u8, u32) {
    const OVERFLOW: u8 = 0x04;
    const UNDERFLOW: u8 = 0x02;
    let expected = command.expected_bytes.get() as usize;
    let moves = command.flags & (WRITES | 0x40) != 0;
    if !moves || (command.flags & WRITES != 0 && given == 0) {
        return (0, 0);
    }
    match given.cmp(&expected) {
        std::cmp::Ordering::Less => (UNDERFLOW, (expected - given) as u32),
        std::cmp::Ordering::Greater => (OVERFLOW, (given - expected) as u32),
        std::cmp::Ordering::Equal => (0, 0),
    }
}

/// The number in a unit's address: peripheral or flat (SAM-5, 4.7).
pub(super) fn unit_of(lun: &[u8; 8]) -> u64 {
    match lun[0] >> 6 {
        0 => lun[1].into(),
        1 => u64::from(u16::from_be_bytes([lun[0] & 0x3f, lun[1]])),
        _ => u64::MAX,
    }
}
