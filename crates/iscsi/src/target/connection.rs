//! A connection: logged in, then commands until it ends.
//!
//! Invariants:
//!
//! 1. Commands are taken in the order of their numbers, and executed as they come; each is answered once, unless it was
//!    aborted: then its answer is held back.
//! 2. What does not keep to the protocol is rejected, or ends the connection, and nothing else.
//! 3. When the connection ends, what was begun is done, and its session's reservations of RESERVE(6) are over.

use super::{
    Targets,
    logging_in::log_in,
    sending::{Sending, StatusNumber},
    tasks::{Coming, Next, WRITES},
    texts::RestOfText,
};
use crate::{
    scsi::{
        commands::code,
        inquiry,
        reservations::Nexus,
        sense::{AdditionalSense, Sense, SenseKey},
        unit::{Asked, Data, Ended, Reachable, Takes, pieces_of},
    },
    session::{login::LoggedIn, negotiation::Agreed},
    wire::{
        frame::{Digests, Frame, HEADER_BYTES, Unreadable},
        pdu::{
            AsyncMessage, DataIn, DataOut, FINAL, Header, IMMEDIATE, Logout, LogoutResponse, NO_TAG, NopIn,
            NopOut, ReadyToTransfer, Reject, ScsiCommand, ScsiResponse, TaskManagement, opcode,
        },
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, BufReader, split},
    sync::Notify,
};
use world::{
    Moment, Stream, World,
    pieces::{Payload, bytes_in, part_of},
    with_deadline,
};

/// Bytes of data that a connection asks for at once at most.
const HELD_BYTES_MAX: usize = 64 << 20;
/// After so long without anything an initiator is asked whether it is there, and has as long to answer.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The last answers have so long to be taken.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Seconds in which who is asked to log out should have.
const LOG_OUT_S: u16 = 3;
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
    tell: impl FnOnce(&str, Option<&str>),
) -> Result<(), Broken> {
    let (reader, mut writer) = split(stream);
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let logging_in = log_in(world, &mut reader, &mut writer, targets);
    let logged_in = with_deadline(world.sleep(LOGIN_MAX), logging_in).await;
    let logged_in = logged_in.unwrap_or_else(|| Err("it took too long over its login".to_owned()))?;
    let Some((LoggedIn { initiator, session, target, agreed }, sending)) = logged_in else { return Ok(()) };
    tell(&initiator, target.as_ref().map(|target| target.name.as_str()));
    let hex: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
    let nexus = Nexus(format!("{initiator},i,0x{hex}"));
    let name = format!("{} {}", nexus.0, target.as_ref().map_or("", |target| &target.name));
    let ends = targets.sessions.begin(&name);
    let connection = Rc::new(Connection {
        world: world.clone(),
        targets: targets.clone(),
        portal: portal.to_owned(),
        target_name: target.as_ref().map_or_else(String::new, |target| target.name.clone()),
        units: target.as_ref().map_or_else(BTreeMap::new, |target| targets.units_of(target, &initiator)),
        initiator: initiator.clone(),
        reach: targets.reach_of(&initiator),
        has_target: target.is_some(),
        nexus,
        agreed,
        sending,
        coming: RefCell::default(),
        executing: RefCell::default(),
        transfer_next: Cell::new(1),
        heard_at: Cell::new(world.now()),
        is_silent: Cell::new(false),
        taken_bytes: Cell::new(0),
        waiting: RefCell::default(),
        idle: Notify::new(),
        rest_of_text: RefCell::default(),
    });
    targets.sessions.connected(&name, &ends, &connection);
    connection.units.values().for_each(|reached| reached.unit.begin(&connection.nexus));
    let cut = Rc::new(Notify::new());
    let writing = {
        let (connection, cut) = (Rc::clone(&connection), Rc::clone(&cut));
        world.spawn("iscsi answers", async move {
            let writing = connection.sending.write_all(&mut writer);
            with_deadline(cut.notified(), writing).await.unwrap_or(Ok(()))
        })
    };
    let has_to_end = async {
        with_deadline(ends.notified(), connection.until_silent()).await;
    };
    let ended = with_deadline(has_to_end, Rc::clone(&connection).read_all(&mut reader)).await;
    connection.until_idle().await;
    connection.sending.close();
    // Who is silent takes nothing any more.
    if connection.is_silent.get() {
        cut.notify_one();
    }
    let written = with_deadline(world.sleep(FAREWELL_MAX), writing).await.unwrap_or_else(|| {
        cut.notify_one();
        Ok(())
    });
    connection.units.values().for_each(|reached| reached.unit.end(&connection.nexus));
    targets.sessions.end(&name, &ends);
    match ended {
        None if connection.is_silent.get() => Err("it answers no more".to_owned()),
        None => Err("its session was begun anew, or reset".to_owned()),
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
    pub(super) initiator: String,
    pub(super) units: BTreeMap<u64, Reachable>,
    /// All units of all targets that this initiator may use.
    reach: Vec<Reachable>,
    has_target: bool,
    pub(super) nexus: Nexus,
    pub(super) agreed: Agreed,
    pub(super) sending: Sending,
    /// By task.
    pub(super) coming: RefCell<BTreeMap<u32, Coming>>,
    /// By task.
    pub(super) executing: RefCell<BTreeMap<u32, Rc<Executing>>>,
    transfer_next: Cell<u32>,
    /// When something came last.
    heard_at: Cell<Moment>,
    /// Nothing came, though it was asked for.
    is_silent: Cell<bool>,
    /// Bytes of commands whose data were asked for.
    taken_bytes: Cell<usize>,
    /// Tasks whose data are asked for when there is room.
    waiting: RefCell<VecDeque<u32>>,
    idle: Notify,
    pub(super) rest_of_text: RefCell<Option<RestOfText>>,
}

/// Whether to go on with a connection.
#[derive(PartialEq, Eq)]
pub(super) enum Going {
    On,
    Out,
}

impl Connection {
    async fn until_idle(&self) {
        while !self.executing.borrow().is_empty() {
            self.idle.notified().await;
        }
    }

    /// Asks who is silent whether it is there; ends when it is not.
    async fn until_silent(&self) {
        loop {
            self.world.sleep(SILENCE_MAX).await;
            let heard_at = self.heard_at.get();
            if self.world.now().since(heard_at) < SILENCE_MAX {
                continue;
            }
            let tag = self.next_transfer();
            let ping = NopIn { flags: FINAL, task: NO_TAG.into(), transfer: tag.into(), ..NopIn::empty() };
            self.sending.send(&ping, StatusNumber::Shows, &[]);
            self.world.sleep(SILENCE_MAX).await;
            if self.heard_at.get() == heard_at {
                return self.is_silent.set(true);
            }
        }
    }

    /// Asks the initiator to log out (RFC 7143, 11.9.1): nothing is lost if it does not.
    pub(super) fn ask_to_log_out(&self) {
        const LOG_OUT: u8 = 1;
        let message = AsyncMessage {
            flags: FINAL,
            no_task: NO_TAG.into(),
            event: LOG_OUT,
            parameters: [0.into(), 0.into(), LOG_OUT_S.into()],
            ..AsyncMessage::empty()
        };
        self.sending.send(&message, StatusNumber::Counts, &[]);
    }

    pub(super) fn next_transfer(&self) -> u32 {
        let tag = self.transfer_next.get();
        self.transfer_next.set(if tag + 1 == NO_TAG { 1 } else { tag + 1 });
        tag
    }

    async fn read_all(self: Rc<Self>, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), Broken> {
        let digests = Digests { header: self.agreed.header_digest, data: self.agreed.data_digest };
        loop {
            // Who does not take answers is not asked for more work.
            self.sending.until_room().await;
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
            self.heard_at.set(self.world.now());
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
            opcode::TASK_MANAGEMENT if self.has_target => {
                if self.manage(&TaskManagement::of(&frame.header)) == Going::Out {
                    return Ok(Going::Out);
                }
            }
            opcode::NOP_OUT => self.echo(&frame),
            opcode::TEXT => self.answer_text(&frame),
            opcode::LOGOUT => {
                let request = Logout::of(&frame.header);
                let response = LogoutResponse { flags: FINAL, task: request.task, ..LogoutResponse::empty() };
                self.sending.send(&response, StatusNumber::Counts, &[]);
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
        self.sending.send(&reject, StatusNumber::Counts, header);
    }

    fn echo(&self, frame: &Frame) {
        let request = NopOut::of(&frame.header);
        // An answer to one of ours: that it came is all that was asked.
        if request.task.get() == NO_TAG {
            return;
        }
        let room = self.agreed.send_bytes_max as usize;
        let data = &frame.data[..frame.data.len().min(room)];
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
        let takes = match self.units.get(&unit_of(&command.lun)) {
            Some(reached) => reached.unit.takes(&command.cdb),
            None => Takes::UpTo(0),
        };
        let coming = match is_known {
            true => None,
            false => Coming::new(command, frame.data, takes, &self.agreed).ok(),
        };
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
            Next::Ask { .. } if !self.takes_room(&mut coming) => {
                self.waiting.borrow_mut().push_back(task);
            }
            Next::Ask { offset, bytes } => {
                let tag = self.next_transfer();
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
                self.sending.send(&asked, StatusNumber::Shows, &[]);
            }
        }
        // Until it is executed it does not hold up the window: what it may hold is bounded by what it said.
        self.coming.borrow_mut().insert(task, coming);
        if counts {
            self.sending.command_done();
        }
    }

    /// Takes room for the data of a command that are to be asked for, if there is any. A command whose data are longer than
    /// all the room there is has it alone.
    fn takes_room(&self, coming: &mut Coming) -> bool {
        let (taken, bytes) = (self.taken_bytes.get(), coming.holds_bytes_max());
        if !coming.has_room && (taken == 0 || taken + bytes <= HELD_BYTES_MAX) {
            self.taken_bytes.set(taken + bytes);
            coming.has_room = true;
        }
        coming.has_room
    }

    /// A command's data are done with: others may be asked for theirs.
    pub(super) fn gives_room(self: &Rc<Self>, held: usize) {
        self.taken_bytes.set(self.taken_bytes.get().checked_sub(held).expect("it was taken"));
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for task in waiting {
            let coming = self.coming.borrow_mut().remove(&task);
            if let Some(coming) = coming {
                self.go_on(coming, false);
            }
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
                self.answer(&coming.command, coming.takes, Ended::Check(sense));
                if coming.has_room {
                    self.gives_room(coming.holds_bytes_max());
                }
            }
        }
    }

    fn execute(self: &Rc<Self>, coming: Coming, counts: bool) {
        let task = coming.command.task.get();
        let unit = unit_of(&coming.command.lun);
        let held = if coming.has_room { coming.holds_bytes_max() } else { 0 };
        let executing = Rc::new(Executing { unit, is_aborted: Cell::new(false) });
        self.executing.borrow_mut().insert(task, Rc::clone(&executing));
        let connection = Rc::clone(self);
        self.world.spawn("iscsi command", async move {
            let Coming { command, mut data, takes, is_mismatched, .. } = coming;
            data.truncate(usize::try_from(takes.bytes()).unwrap_or(usize::MAX));
            let ended = connection.ask(unit, &command, data, is_mismatched).await;
            if counts {
                connection.sending.command_done();
            }
            if !executing.is_aborted.get() {
                connection.answer(&command, takes, ended);
            }
            let mut all = connection.executing.borrow_mut();
            if all.get(&task).is_some_and(|known| Rc::ptr_eq(known, &executing)) {
                all.remove(&task);
            }
            drop(all);
            if held > 0 {
                connection.gives_room(held);
            }
            connection.idle.notify_one();
        });
    }

    async fn ask(&self, number: u64, command: &ScsiCommand, data: Vec<u8>, is_mismatched: bool) -> Ended {
        let numbers: Vec<u64> = self.units.keys().copied().collect();
        let cdb = &command.cdb[..];
        let data = pieces_of(&data);
        let may_write = self.units.get(&number).is_some_and(|reached| reached.may_write);
        let asked = Asked {
            nexus: &self.nexus,
            target: &self.target_name,
            cdb,
            data,
            units: &numbers,
            reach: &self.reach,
            may_write,
            is_mismatched,
        };
        match (self.units.get(&number), cdb[0]) {
            (Some(reached), code::PERSISTENT_RESERVE_OUT) if cdb[1] & 0x1f == code::PREEMPT_AND_ABORT => {
                let before = reached.unit.registered();
                let ended = reached.unit.execute(asked).await;
                let after = reached.unit.registered();
                self.abort_preempted(&reached.unit, &before.difference(&after).cloned().collect::<Vec<_>>());
                ended
            }
            (Some(reached), _) => reached.unit.execute(asked).await,
            // Whoever looks for units asks number 0, whether it is there or not.
            (None, code::REPORT_LUNS) => match self.units.values().next() {
                Some(reached) => reached.unit.execute(asked).await,
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

    fn answer(&self, command: &ScsiCommand, takes: Takes, ended: Ended) {
        let given = takes.bytes();
        match ended {
            Ended::Good(data) => self.answer_good(command, given, data),
            Ended::Check(sense) => {
                let sense = sense.fixed();
                let mut data = (sense.len() as u16).to_be_bytes().to_vec();
                data.extend(sense);
                self.respond(command, 0x02, given, &data);
            }
            Ended::Conflict => self.respond(command, 0x18, 0, &[]),
        }
    }

    /// Data, then the status: with the last of them, if there are any.
    fn answer_good(&self, command: &ScsiCommand, taken: u64, data: Data) {
        let buffers = match data {
            Data::None => Vec::new(),
            Data::Parameters(bytes) => pieces_of(&bytes),
            Data::Blocks(buffers) => buffers,
        };
        let whole = buffers.into_iter().map(|buffer| (0..buffer.len(), Arc::new(buffer)));
        let payload: Payload = whole.map(|(range, buffer)| (buffer, range)).collect();
        let bytes = bytes_in(&payload);
        let reads = command.flags & 0x40 != 0;
        let room = if reads { command.expected_bytes.get() as usize } else { 0 };
        let sent = bytes.min(room);
        if sent == 0 {
            let moved = if command.flags & WRITES == 0 { bytes as u64 } else { taken };
            return self.respond(command, 0, moved, &[]);
        }
        let (flags, residual) = residual_of(command, bytes as u64);
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
            self.sending.send_payload(&header, counted, part_of(&payload, offset, end));
            offset = end;
            number += 1;
        }
    }

    fn respond(&self, command: &ScsiCommand, status: u8, moved: u64, data: &[u8]) {
        // What a command that failed would have moved is known if it takes data; what it read is nothing.
        let has_residual = status == 0 || moved > 0;
        let (flags, residual) = if has_residual { residual_of(command, moved) } else { (0, 0) };
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

/// Overflow or underflow, and by how many bytes, of a command that takes or gives so many.
fn residual_of(command: &ScsiCommand, given: u64) -> (u8, u32) {
    const OVERFLOW: u8 = 0x04;
    const UNDERFLOW: u8 = 0x02;
    let expected = u64::from(command.expected_bytes.get());
    match given.cmp(&expected) {
        std::cmp::Ordering::Less => (UNDERFLOW, (expected - given) as u32),
        std::cmp::Ordering::Greater => (OVERFLOW, u32::try_from(given - expected).unwrap_or(u32::MAX)),
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
