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
    sending::{Sending, StatusNumber},
    tasks::{Coming, Next, WRITES},
};
use crate::{
    scsi::{
        commands::code,
        inquiry,
        reservations::Nexus,
        sense::{AdditionalSense, Sense, SenseKey},
        unit::{Asked, Data, Ended, Unit},
    },
    session::{
        login::{LoggedIn, LoginMachine, PORTAL_GROUP},
        negotiation::Agreed,
    },
    wire::{
        frame::{Digests, Frame, HEADER_BYTES, Unreadable},
        pdu::{
            DataIn, DataOut, FINAL, Header, IMMEDIATE, Login, LoginResponse, Logout, LogoutResponse, NO_TAG,
            NopIn, NopOut, ReadyToTransfer, Reject, ScsiCommand, ScsiResponse, TaskManagement,
            TaskManagementResponse, Text, TextResponse, opcode,
        },
        text,
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use tokio::io::{AsyncRead, BufReader, split};
use world::{Buffer, Stream, World};

const LOGIN_MAX: Duration = Duration::from_secs(15);
/// Bytes of data of a login or a text.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Reasons to reject (RFC 7143, 11.17.1).
const PROTOCOL_ERROR: u8 = 0x04;
const NOT_SUPPORTED: u8 = 0x05;
const DATA_DIGEST_ERROR: u8 = 0x02;

/// Why a connection ends that did not log out, in a line.
type Broken = String;

/// What `work` gives, unless `deadline` comes before.
async fn before<T>(deadline: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut deadline, mut work) = (pin!(deadline), pin!(work));
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => deadline.as_mut().poll(context).map(|()| None),
    })
    .await
}

fn broken(unreadable: Unreadable) -> Broken {
    match unreadable {
        Unreadable::DataDigest(_) => "data were damaged on their way".to_owned(),
        Unreadable::HeaderDigest => "a header was damaged on its way".to_owned(),
        Unreadable::TooLong { bytes } => {
            format!("{bytes} bytes of data came at once, more than was agreed on")
        }
        Unreadable::Broken(error) => error.to_string(),
    }
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

/// Logs an initiator in; none if it went before.
async fn log_in(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    targets: &Targets,
) -> Result<Option<(LoggedIn, Sending)>, Broken> {
    let mut machine = LoginMachine::new(targets);
    let mut sending: Option<Sending> = None;
    loop {
        let frame = Frame::read(reader, Digests::default(), TEXT_BYTES_MAX).await.map_err(broken)?;
        let Some(frame) = frame else { return Ok(None) };
        if frame.opcode() != opcode::LOGIN {
            return Err("it sends commands before it is logged in".to_owned());
        }
        let request = Login::of(&frame.header);
        // A login is immediate: its number is that of the first command.
        let sending = sending.get_or_insert_with(|| Sending::new(1, request.command_number.get()));
        let answered = machine.take(&request, &frame.data);
        let mut response = LoginResponse {
            initiator_session: request.initiator_session,
            task: request.task,
            ..LoginResponse::empty()
        };
        let (data, logged_in, refused) = match answered {
            Ok(answer) => {
                response.flags = answer.flags;
                if answer.logged_in.is_some() {
                    response.target_session = 1.into();
                }
                (text::write(answer.pairs), answer.logged_in, None)
            }
            Err(refusal) => {
                (response.status_class, response.status_detail) = (refusal.0, refusal.1);
                (Vec::new(), None, Some(refusal))
            }
        };
        sending.send(&response, StatusNumber::Counts, data);
        sending.write_now(writer).await.map_err(|error| error.to_string())?;
        if let Some(refusal) = refused {
            return Err(format!("its login was refused: status {:#04x}{:02x}", refusal.0, refusal.1));
        }
        if let Some(logged_in) = logged_in {
            let Agreed { header_digest, data_digest, .. } = logged_in.agreed;
            sending.set_digests(Digests { header: header_digest, data: data_digest });
            let sending = std::mem::replace(sending, Sending::new(0, 0));
            return Ok(Some((logged_in, sending)));
        }
    }
}

/// A command that is executed.
struct Executing {
    unit: u64,
    is_aborted: Cell<bool>,
}

struct Connection {
    world: World,
    targets: Targets,
    portal: String,
    target_name: String,
    units: BTreeMap<u64, Rc<Unit>>,
    has_target: bool,
    nexus: Nexus,
    agreed: Agreed,
    sending: Sending,
    /// By task.
    coming: RefCell<BTreeMap<u32, Coming>>,
    /// By task.
    executing: RefCell<BTreeMap<u32, Rc<Executing>>>,
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

    fn reject(&self, header: &[u8; HEADER_BYTES], reason: u8) {
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

    /// SendTargets, and nothing else.
    fn answer_text(&self, frame: &Frame) {
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
            Data::Blocks(buffers) => buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect(),
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

    /// Task management (RFC 7143, 11.5): what is aborted is done, and not answered.
    fn manage(&self, request: &TaskManagement) {
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
fn unit_of(lun: &[u8; 8]) -> u64 {
    match lun[0] >> 6 {
        0 => lun[1].into(),
        1 => u64::from(u16::from_be_bytes([lun[0] & 0x3f, lun[1]])),
        _ => u64::MAX,
    }
}
